"""Texts over which a process died are set aside (attack A9): the counting, without a process that dies."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from memory_anchor.base.quarantine import FOLDER, MARKER, RECORD, Quarantine, Suspect, suspects_of, text_key
from memory_anchor.domain.errors import DiskFull

COST_S = 0.001


def died(folder: Path, *texts: str, name: str = "1-1") -> None:
    """Leave what a process leaves that dies while it reads these texts."""
    (folder / FOLDER).mkdir(exist_ok=True)
    marked = {"step": "", "texts": {text_key(text): f"memory {text}" for text in texts}}
    (folder / FOLDER / f"{name}{MARKER}").write_text(json.dumps(marked))


def test_a_text_that_was_alone_at_two_crashes_is_quarantined(tmp_path: Path) -> None:
    """Attack A9: one death is none's fault; the second sets it aside, by a name that tells nothing of it."""
    died(tmp_path, "poison")
    assert not Quarantine(tmp_path).is_quarantined("poison")
    died(tmp_path, "poison", name="2-1")
    assert Quarantine(tmp_path).is_quarantined("poison")
    assert list(suspects_of(tmp_path).values()) == [Suspect("memory poison", 2, "")]
    assert list((tmp_path / FOLDER).iterdir()) == [tmp_path / FOLDER / RECORD]


def test_a_text_of_a_batch_is_quarantined_only_after_it_was_alone(tmp_path: Path) -> None:
    """Attack A9: after a death in a batch each is taken alone; the other seven come through and are free."""
    for number in range(3):
        died(tmp_path, "a", "b", "poison", name=str(number))
    quarantine = Quarantine(tmp_path)
    assert quarantine.count_quarantined() == 0
    assert quarantine.safe_groups(["a", "fine", "b", "poison"], str) == [["fine"], ["a"], ["b"], ["poison"]]
    for text in ("a", "b"):
        with quarantine.reading({text: text}):
            pass
    died(tmp_path, "poison", name="next")
    after = Quarantine(tmp_path)
    assert after.safe_groups(["a", "b", "poison"], str) == [["a", "b"]]


def test_surviving_another_step_clears_no_suspect(tmp_path: Path) -> None:
    """Attack A9: what kills when it is embedded is read without harm before, at every start."""
    died(tmp_path, "poison")
    with (quarantine := Quarantine(tmp_path)).reading({"poison": "poison"}, step="embed"):
        pass
    assert suspects_of(tmp_path) and quarantine.safe_groups(["fine", "poison"], str) == [["fine"], ["poison"]]


def test_errors_orderly_ends_and_incomplete_markers_are_no_crash(tmp_path: Path) -> None:
    """Attack A9: only a process that is gone leaves its marker."""
    quarantine = Quarantine(tmp_path)
    with pytest.raises(ValueError, match="told"), quarantine.reading({"x": "text"}):
        raise ValueError("told")
    left = quarantine.reading({"x": "text"})
    left.__enter__()
    quarantine.close()
    (tmp_path / FOLDER / f"cut{MARKER}").write_text('{"ab')
    assert Quarantine(tmp_path).safe_groups(["text"], str) == [["text"]]
    assert suspects_of(tmp_path) == {}


def test_a_marker_is_counted_once_also_where_the_count_is_cut_off(tmp_path: Path) -> None:
    """Attack A9: the record names the markers that it counts; a kill before they go counts none twice."""
    died(tmp_path, "poison")
    Quarantine(tmp_path)
    died(tmp_path, "poison")  # as if the marker had been left lying
    assert not Quarantine(tmp_path).is_quarantined("poison")


def test_a_new_release_and_a_removed_record_give_another_chance(tmp_path: Path) -> None:
    """Attack A9: what `doctor` names as the cure, and an upgrade."""
    for number in range(2):
        died(tmp_path, "poison", name=str(number))
    assert Quarantine(tmp_path, release="1").is_quarantined("poison")
    assert not Quarantine(tmp_path, release="2").is_quarantined("poison")


def test_marking_costs_less_than_a_millisecond_and_no_folder_costs_nothing(tmp_path: Path) -> None:
    """Attack A9: CPU time of one save's marker; without a data folder no file is made."""
    quarantine = Quarantine(tmp_path)
    begun = time.process_time()
    for _ in range(100):
        with quarantine.reading({"m": "text " * 1_000}):
            pass
    assert (time.process_time() - begun) / 100 < COST_S
    with Quarantine().reading({"m": "text"}):
        pass
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_full_disk_does_not_fail_the_reading_of_a_suspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack A9: clearing a suspect writes the record; what was read stays read when there is no room for it."""
    died(tmp_path, "a", "b")
    quarantine = Quarantine(tmp_path)

    def full(*_args: object, **_named: object) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr("memory_anchor.base.quarantine.write_atomic", full)
    with quarantine.reading({"memory a": "a"}):
        pass
    assert quarantine.safe_groups(["a", "b"], str) == [["a"], ["b"]]  # cleared in memory, "b" alone
