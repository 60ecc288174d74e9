"""The approved texts of one project, outside it, and the trail of approvals inside it.

Two things with two jobs. An `Archive` keeps every approved text as a numbered file (0600), sealed by the approver's key
over project, number and text; the newest sound one is what L0 serves, the older ones are its backups. The trail
(`.ai/proposals/approved.yaml`, in Git) is a chain of signed links, each naming its predecessor, by which a colleague's
machine recognises that the text it just pulled was approved by somebody it knows. A link counts only as a continuation
of the link one serves now, so neither an older approval nor another project's can be replayed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from memory_anchor import beneath
from memory_anchor.files import exclusive, make_private, read_bounded, write_whole
from memory_anchor.layers.approval import Approver, Signer, digest_of, signed_by, signer_of
from memory_anchor.layers.constitution_text import MAX_BYTES

TRAIL_FILE = "approved.yaml"
INDEX_FILE = "initialised.json"
MAX_LINKS = 200
MAX_APPLIED = 1_000
MAX_REVISION_BYTES = 8 * MAX_BYTES
"""JSON may escape a character into six bytes."""
MAX_TRAIL_BYTES = 400_000
MAX_INDEX_BYTES = 4_000_000
REVISIONS_TRIED = 20
"""How many older texts are tried when newer ones are damaged."""


@dataclass(frozen=True, slots=True)
class Link:
    """One approval in the trail. digest: of what is served by it; previous: id of the link before, "" for the first."""

    digest: str
    previous: str
    proposal: str
    by: str
    at: str
    signature: str

    @property
    def said(self) -> dict[str, Any]:
        parts = {name: value for name, value in asdict(self).items() if name != "signature"}
        return {"what": "memory-anchor approved 1", **parts}

    @property
    def id(self) -> str:
        return digest_of(self.said)


def linked(signer: Signer, *, digest: str, previous: str, proposal: str, by: str, at: str) -> Link:
    """Return a signed link."""
    link = Link(digest, previous, proposal, by, at, "")
    return Link(digest, previous, proposal, by, at, signer.sign(link.said))


@dataclass(frozen=True, slots=True)
class Revision:
    """One approved text. applied: ids of the proposals that made it and those before it, newest last."""

    number: int
    text: str
    link: Link
    applied: tuple[str, ...]
    seal: str

    def said(self, project: str) -> dict[str, Any]:
        return {
            "what": "memory-anchor sealed text 1",
            "project": project,
            "number": self.number,
            "text": hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest(),
            "link": self.link.id,
            "applied": list(self.applied),
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """What the archive has. sound: the seal of `revision` is good. damaged: numbers of newer files that are not."""

    revision: Revision | None
    sound: bool = True
    damaged: tuple[int, ...] = ()


class Archive:
    """The sealed texts of one project: files `NNNNNN.json` in `<home>/approved`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._folder = home / "approved"
        self._cached: tuple[tuple[object, ...], Standing] | None = None

    def exists(self) -> bool:
        """Return whether anything was ever approved here."""
        return bool(self._names())

    def current(self, own: Approver | None) -> Standing:
        """Return the newest sound text; where none is, the newest that can be read at all, marked unsound."""
        names = self._names()[-REVISIONS_TRIED:]
        newest = self._bytes(names[-1]) if names else b""
        key = (tuple(names), newest, own)
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._weigh(names, own))
        return self._cached[1]

    def put(self, signer: Signer, *, text: str, link: Link, applied: Sequence[str]) -> Revision:
        """Seal and keep a text as the newest, durable on return."""
        names = self._names()
        number = int(names[-1]) + 1 if names else 1
        bare = Revision(number, text, link, tuple(applied)[-MAX_APPLIED:], "")
        sealed = Revision(number, text, link, bare.applied, signer.sign(bare.said(self.home.name)))
        make_private(self.home)
        make_private(self._folder)
        content = json.dumps(asdict(sealed), ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
        write_whole(self._folder / f"{number:06d}.json", content)
        return sealed

    def _weigh(self, names: Sequence[str], own: Approver | None) -> Standing:
        readable: Revision | None = None
        damaged: list[int] = []
        for name in reversed(names):
            revision = self._read(name)
            if revision and own and signed_by(own.public, revision.said(self.home.name), revision.seal):
                return Standing(revision, True, tuple(damaged))
            readable = readable or revision
            damaged.append(int(name))
        return Standing(readable, False, tuple(damaged))

    def _names(self) -> list[str]:
        try:
            return sorted(one.stem for one in self._folder.glob("[0-9][0-9][0-9][0-9][0-9][0-9].json"))
        except OSError:
            return []

    def _bytes(self, name: str) -> bytes:
        try:
            return read_bounded(self._folder / f"{name}.json", most_bytes=MAX_REVISION_BYTES) or b""
        except OSError:
            return b""

    def _read(self, name: str) -> Revision | None:
        try:
            said = json.loads(self._bytes(name))
            link = Link(**{part: str(value) for part, value in said["link"].items()})
            applied = tuple(str(one) for one in said["applied"])
            revision = Revision(int(said["number"]), str(said["text"]), link, applied, str(said["seal"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return revision if revision.number == int(name) else None


class Index:
    """Which folders were ever initialised, so that a project cannot become new by losing its id or its file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX_FILE

    def home_of(self, path: str) -> str | None:
        """Return the name of the project that was initialised at `path`."""
        return self._read().get(path)

    def holds(self, name: str) -> bool:
        return name in self._read().values()

    def add(self, path: str, name: str) -> None:
        """Remember that `path` belongs to the project `name`."""
        if self._read().get(path) == name:
            return
        with exclusive(self._path.with_suffix(".lock")):
            found = self._read() | {path: name}
            write_whole(self._path, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(read_bounded(self._path, most_bytes=MAX_INDEX_BYTES) or b"{}")
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {path: name for path, name in found.items() if isinstance(name, str)}


# --- the trail in the project ----------------------------------------------------------------------------------


def read_trail(folder: Path) -> list[Link]:
    """Return the links that can be read, in order; a broken or conflicted file is an empty trail."""
    try:
        content = beneath.read(*_below_project(folder), most_bytes=MAX_TRAIL_BYTES) or b""
        listed = yaml.load(content.decode("utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - strings only, no objects
        return [Link(**{part: _plain(value) for part, value in one.items()}) for one in listed["links"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return []


def write_trail(folder: Path, *, head: Link | None, new: Link) -> None:
    """Append `new` behind `head`; links behind `head` that are not ours to continue are dropped.

    head: None for a first approval, which starts a chain of its own behind whatever is there.
    """
    trail = read_trail(folder)
    ids = [one.id for one in trail]
    if new.id in ids:
        return
    if head is None:
        kept = trail
    elif head.id in ids:
        kept = trail[: ids.index(head.id) + 1]
    else:
        kept = [head]
    said: Mapping[str, Any] = {"links": [asdict(one) for one in [*kept, new][-MAX_LINKS:]]}
    text = "# 每次生效的批准，由批准者签名；随 constitution.yaml 一起提交。\n"
    text += "# Every approval that took effect, signed by its approver; commit it with constitution.yaml.\n"
    text += yaml.safe_dump(said, allow_unicode=True, sort_keys=False)
    beneath.write(*_below_project(folder), text.encode())


def _below_project(folder: Path) -> tuple[Path, str]:
    """Return the project and the trail's path in it: links below the project are not followed."""
    root = folder.parent.parent
    return root, (folder / TRAIL_FILE).relative_to(root).as_posix()


def continuation(trail: Sequence[Link], *, after: Link, digest: str, known: Sequence[Approver]) -> Link | None:
    """Return the last link that leads from `after` to a text with `digest`, every step signed by a known approver."""
    previous, found = after.id, None
    behind = [one.id for one in trail].index(after.id) + 1 if after.id in {one.id for one in trail} else 0
    for link in trail[behind:]:
        if link.previous != previous or signer_of(known, link.said, link.signature) is None:
            break
        previous = link.id
        if link.digest == digest:
            found = link
    return found


def _plain(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a link's part is not text")
    return value
