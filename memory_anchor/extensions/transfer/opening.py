"""What an import reads: a file of JSON lines, or another tool's memories as such lines. Shared by terminal and page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from memory_anchor.base.files import file_error
from memory_anchor.domain.errors import BadInput

if TYPE_CHECKING:
    from memory_anchor.extensions.transfer.transfer_files import WrongLine

ERRORS_SHOWN = 20
FIRST_BYTES = 4096


@dataclass
class Unreadable:
    """The memories of another tool that cannot be read: how many, and the first of them."""

    many: int = 0
    shown: list[WrongLine] = field(default_factory=list)

    def add(self, place: str, wrong: str) -> None:
        self.many += 1
        if len(self.shown) < ERRORS_SHOWN:
            self.shown.append({"line": 0, "message": f"{place}: {wrong}"})


def lines_of_tool(tool: str, place: Path | None, unreadable: Unreadable, tick: Callable[[int], None]) -> BinaryIO:
    """Return another tool's memories as lines of ours. unreadable: gets those that cannot be read.

    Raises BadInput, NotFound: see `other_tools.read_items`.
    """
    from memory_anchor.extensions.transfer import other_tools
    from memory_anchor.extensions.transfer.transfer_files import dumped

    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's with closes it
    with writing(copy):
        for number, entry in enumerate(other_tools.read_items(tool, place, home=Path.home()), 1):
            if entry.line is None:
                unreadable.add(entry.location, entry.problem)
            else:
                copy.write(dumped(entry.line).encode("utf-8", "replace") + b"\n")
            tick(number)
    return copy


@contextmanager
def writing(copy: BinaryIO) -> Iterator[None]:
    """Turn an error of the disk that holds a temporary file into one of ours."""
    try:
        yield
    except OSError as error:
        copy.close()
        raise file_error(error, Path(tempfile.gettempdir())) from error


def check_text(name: str, stream: BinaryIO) -> None:
    """Raise BadInput where the first bytes are no UTF-8 text."""
    stream.seek(0)
    start = stream.read(FIRST_BYTES)
    stream.seek(0)
    cures = {
        b"\xff\xfe": "is UTF-16; `iconv -f UTF-16 -t UTF-8` converts it",
        b"\xfe\xff": "is UTF-16; `iconv -f UTF-16 -t UTF-8` converts it",
        b"\x1f\x8b": "is compressed; `gunzip` it, or give a backup to `memory-anchor backup restore`",
    }
    cure = next((cures[sign] for sign in cures if start.startswith(sign)), "")
    if not cure and b"\0" in start:
        cure = "is no text; allowed is what `memory-anchor export` wrote, or --from TOOL"
    if cure:
        stream.close()
        raise BadInput(f"{name} {cure}")
