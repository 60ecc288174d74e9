"""Attack A13: a hook's payload names a device, a pipe, a link or somebody else's file as the transcript."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import pytest
from doors import House, answer

from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.ingest import transcripts
from memory_anchor.ingest.transcripts import read_transcript
from memory_anchor.runtime import wire

PIPES = 60
GROWTH_BYTES = 64 << 20


def odd_files(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe")
    (folder / "real.jsonl").write_text('{"role": "user", "content": "We use Redis"}\n')
    (folder / "link.jsonl").symlink_to(folder / "real.jsonl")
    (folder / "folder").mkdir()
    return {
        "pipe": folder / "pipe",
        "link": folder / "link.jsonl",
        "folder": folder / "folder",
        "zero": Path("/dev/zero"),
        "full": Path("/dev/full"),
        "terminal": Path("/dev/tty"),
        "own memory": Path("/proc/self/mem"),
        "through a file": folder / "real.jsonl" / "below",
        "with a NUL": Path(f"{folder}/a\0b"),
        "too long": Path("/" + "x" * 5000),
    }


def test_only_a_regular_file_of_this_user_is_read(tmp_path: Path) -> None:
    """Attack A13: one sentence, at once, and nothing is read."""
    for what, path in odd_files(tmp_path).items():
        with pytest.raises((BadInput, NotFound)) as refused:
            read_transcript(path)
        assert "\n" not in str(refused.value).replace("\0", ""), what
        assert len(str(refused.value)) < 6000, what


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_not_read(tmp_path: Path) -> None:
    """Attack A13: what an engine may read by accident of rights is not what its user wrote."""
    path = tmp_path / "theirs.jsonl"
    path.write_text('{"role": "user", "content": "We use Redis"}\n')
    os.chown(path, 12345, 12345)
    with pytest.raises(BadInput, match="belongs to another user"):
        read_transcript(path)


def test_a_file_that_is_too_large_or_grows_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack A13: a sparse file of a terabyte costs nothing; /proc files say 0 and go on."""
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match="allowed are"):
        read_transcript(path)
    monkeypatch.setattr(transcripts, "MAX_BYTES", 100)
    with pytest.raises(BadInput, match="grew above 100"):
        read_transcript(Path("/proc/self/status"))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH_BYTES


@pytest.mark.slow
def test_no_transcript_costs_the_engine_memory_or_a_thread(tmp_path: Path) -> None:
    """Attack A13: through the real hook and engine; afterwards a command answers in the time `run` waits."""
    house = House(tmp_path)
    try:
        answer(house.bridge("here"), "search_events")
        (house.home / "odd").mkdir()
        files = list(odd_files(house.home / "odd").values())
        for number in range(PIPES):
            os.mkfifo(house.home / f"pipe-{number}")
            files.append(house.home / f"pipe-{number}")
        caller = wire.Preamble(project_dir=str(house.project("here")), conversation="c")
        before = rss(house.state()["pid"])
        for event in ("PreCompact", "Stop", "SessionEnd"):
            for path in files:
                told = wire.ask(
                    str(house.data), "hook", caller, timeout_s=20, event=event, payload={"transcript_path": str(path)}
                )
                assert told["ok"], told
        assert house.run("list").returncode == 0
        time.sleep(1.0)
        assert rss(house.state()["pid"]) - before < GROWTH_BYTES
        assert threads(house.state()["pid"]) < 60
        log = (house.data / "logs" / "engine.log").read_text()
        assert "no regular file" in log and "Traceback" not in log
    finally:
        house.close()


def test_a_hook_reads_its_client_within_bounds(tmp_path: Path) -> None:
    """Attack A13: what is too long, no JSON or no object is one sentence, exit 0, and nothing is waited for."""
    house = House(tmp_path, private=True)
    odd = {
        b"[" * 200_000: "no JSON",
        b"\xff\xfe{": "no JSON",
        b"[1, 2]": "its payload is a list",
        b'{"a": ' + b'"' + b"x" * (9 << 20): "longer than",
    }
    for raw, why in odd.items():
        done = house.run("hook", "Stop", stdin=raw)
        assert done.returncode == 0 and done.stdout == b""
        assert why in done.stderr.decode() and b"Traceback" not in done.stderr


def test_odd_values_in_a_hooks_payload_never_end_it(tmp_path: Path) -> None:
    """Attack A13: the client gets no traceback, whatever the payload holds."""
    house = House(tmp_path, private=True)
    for payload in (
        {"session_id": "\ud800", "cwd": "\ud800", "compact_summary": "\ud800"},
        {"session_id": {"a": 1}, "cwd": ["x"], "transcript_path": 7},
        {"cwd": "a\0b", "session_id": "\0"},
    ):
        done = house.run("hook", "PostCompact", stdin=json.dumps(payload).encode())
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr, done.stderr


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
