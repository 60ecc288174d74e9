"""Copying files with holes: the same bytes, the same holes, private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from memory_anchor.adapters.sparse_files import copy_tree

LENGTH = 8 << 20


def folder(path: Path) -> Path:
    (path / "in").mkdir(parents=True)
    (path / "empty").write_bytes(b"")
    (path / "plain").write_bytes(b"abc\0\0def")
    with (path / "in" / "holes").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"middle")
        file.truncate(LENGTH)
    return path


def same(one: Path, other: Path) -> bool:
    names = {path.relative_to(one) for path in one.rglob("*")}
    assert names == {path.relative_to(other) for path in other.rglob("*")}
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names if (one / name).is_file())


def test_a_copy_has_the_bytes_and_the_holes(tmp_path: Path) -> None:
    """Backup: aware of sparse files."""
    source, target = folder(tmp_path / "source"), tmp_path / "target"
    copy_tree(source, target)
    assert same(source, target)
    assert (target / "in" / "holes").stat().st_size == LENGTH
    blocks = getattr((target / "in" / "holes").stat(), "st_blocks", 0)
    assert blocks * 512 < LENGTH // 2
    assert stat.S_IMODE((target / "in").stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "plain").stat().st_mode) == 0o600


def test_without_help_of_the_file_system_zeros_become_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows: the same copy, only slower."""
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    source, target = folder(tmp_path / "source"), tmp_path / "target"
    copy_tree(source, target)
    assert same(source, target)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A copy has its own new folder."""
    source = folder(tmp_path / "source")
    with pytest.raises(FileExistsError):
        copy_tree(source, source)
