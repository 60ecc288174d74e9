"""Which text of L0 is in force, and what to say when the project's file says something else.

Only a text that a human sealed on this machine is ever in force, whatever the project's file holds. Before the first
approval, or when the sealed text is lost or does not carry the approver's seal, L0 is empty and a warning names the
command for the human: a repository that was just cloned must not speak to a model in its owner's name. The rejected
way, serving the file with a warning, did just that. Files are compared by their bytes rather than by time stamps: they
are small, and an edit within one tick of the file system's clock must not go unseen. Invariant: `now` never raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memory_anchor import beneath
from memory_anchor.errors import BadInput, MemoryAnchorError
from memory_anchor.files import make_private, write_atomic
from memory_anchor.identity.approved import (
    Archive,
    ArchiveState,
    Link,
    SealedIndex,
    SealedRevision,
    advanced,
    linked,
    made_elsewhere,
    numbers_of,
    read_trail,
    write_trail,
)
from memory_anchor.identity.changes import apply_proposal
from memory_anchor.identity.constitution_text import (
    FILE_NAME,
    MAX_BYTES,
    PLACEHOLDER,
    PROBLEMS_SHOWN,
    STARTER,
    Document,
    changed_lines,
    decode,
    parse,
)
from memory_anchor.identity.keys import Approver, KeyRing, Signs
from memory_anchor.identity.remote_approval import jointly_sealed
from memory_anchor.model import Proposal, ProposalAction
from memory_anchor.ports import AuditRecord

MISSING = "it is missing"
EMPTY = "it is empty"
"""What a write that was cut short, or a shell's `>`, leaves for a moment."""
BACKUPS_KEPT = 50
TOLD = "constitution."
"""How the kinds of audit records about L0 begin."""
RESTORE = f"`memory-anchor constitution show --yaml > {FILE_NAME}` brings it back"
ADOPT = "`memory-anchor constitution adopt` proposes the difference"
MAKE = "a human runs `memory-anchor init` on a terminal to make one"
INIT = "a human runs `memory-anchor init` on a terminal to approve it"
NOTHING = parse("")
OLDER = (
    "no constitution is in force: what is left of the approved texts may be an older one ({why}); "
    f"{INIT} anew, restores a backup, or takes it with `memory-anchor constitution adopt`; `memory-anchor doctor "
    "--audit` tells more"
)
"""What is in force before the first approval."""
GONE = (
    f"no constitution is in force: the approved text of {FILE_NAME} is gone from this machine; restore the identity "
    f"folder of the data folder from a backup, or {INIT} anew"
)
UNSEALED = (
    f"no constitution is in force: the approved text of {FILE_NAME} does not carry this machine's approver's seal; "
    f"restore the identity folder of the data folder from a backup, or {INIT} anew"
)


@dataclass(frozen=True, slots=True)
class Served:
    """The text in force. revision: the sealed text it is, None when none is in force."""

    document: Document
    warnings: tuple[str, ...]
    revision: SealedRevision | None


@dataclass(frozen=True, slots=True)
class FoundText:
    """The project's file. document: None when there is none or it is no text; wrong: why it cannot be used."""

    content: bytes | None
    document: Document | None
    wrong: str = ""


class TextInForce:
    """Reads the file and the archive of one project and weighs them; keeps the last answer."""

    def __init__(
        self,
        *,
        path: Path,
        project_dir: Path | None,
        home: Path,
        keys: KeyRing,
        trail: Path,
        records: Callable[[str], Iterable[AuditRecord]],
        account: str,
    ) -> None:
        """trail: the folder of the approvals' trail. records: the audit trail, by how a kind begins. account: whose."""
        self.path = path
        self._trail = trail
        self._records = records
        self._known_elsewhere: set[tuple[str, str]] = set()
        self._at = str(project_dir.resolve()) if project_dir else ""
        self._home = home
        self._keys = keys
        self._joint = partial(jointly_sealed, account=account)
        self._index = SealedIndex(home.parent)
        self._archives: dict[str, Archive] = {}
        self._found: FoundText | None = None
        self._cached: tuple[tuple[object, ...], Served] | None = None
        self._parsed = NOTHING

    @property
    def initialised(self) -> bool:
        """Whether this project, by its id or its folder, was ever approved on this machine."""
        return self.archive().exists() or self._index.holds(self._home.name, self._at)

    def archive(self, keys: Sequence[Approver] | None = None) -> Archive:
        """Return the archive of this id, or of the one its folder was approved under; keys: the sealing approvers."""
        own = self._archive_of(self._home.name)
        if own.exists() or not self._at:
            return own
        other = self._index.home_of(self._at, self._keys.sealing_approvers() if keys is None else keys)
        return self._archive_of(other) if other else own

    def remember(self, signer: Signs | None = None) -> None:
        """Bind the project's folder to its archive. signer: without, the folder only counts as initialised."""
        if self._at:
            self._index.add(self._at, self.archive().home.name, signer)

    def seal(
        self,
        signer: Signs,
        *,
        text: str,
        link: Link,
        applied: Sequence[str],
        approval: str = "",
        keep: bool = True,
    ) -> SealedRevision:
        """Keep a text as the newest approved one, and the folder as its own; durable on return.

        approval: where approvers elsewhere seal it together, see `SealedRevision`. keep: without, it is only made.
        Raises Refused: the seal would not count here.
        """
        keys = self._keys.sealing_approvers()
        if not keep:
            made = self.archive().sealed
            return made(signer, text=text, link=link, applied=applied, keys=keys, approval=approval)
        sealed = self.archive().put(signer, text=text, link=link, applied=applied, keys=keys, approval=approval)
        self.remember(None if approval else signer)  # which folder it is was signed when it was first approved
        return sealed

    def begin(
        self, signer: Signs, document: Document, *, by: str, at: str, applied: Sequence[str]
    ) -> tuple[SealedRevision, bool]:
        """Seal a first text, and return it with whether a clone's trail, which ends in this very text, goes on here."""
        trail = read_trail(self._trail)
        joined: Link | None = trail[-1] if trail and trail[-1].digest == document.digest else None
        link = joined or linked(signer, digest=document.digest, previous="", proposal="", by=by, at=at)
        sealed = self.seal(signer, text=document.text, link=link, applied=applied)
        if joined is None:
            write_trail(self._trail, head=None, new=link)
        return sealed, joined is not None

    def now(self) -> Served:
        """Return the text in force with its warnings."""
        found, standing = self.file(), self.standing()
        initialised = standing.revision is not None or self.initialised
        key = (found.content, found.wrong, standing, initialised)
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._weigh(found, standing, initialised))
            if standing.revision is not None:
                with contextlib.suppress(MemoryAnchorError):  # a read-only data folder only forgets a second path
                    self.remember()
        return self._cached[1]

    def approved(self) -> Document:
        """Return the text in force alone, whatever the project's file says; an empty one where none is.

        Without a key here nothing that lies here was sealed by anybody, so the archive is not read.
        """
        keys = self._keys.sealing_approvers()
        if not keys:
            return NOTHING
        good = self.standing(keys).good
        return NOTHING if good is None else self._document(good.text)

    def _document(self, text: str) -> Document:
        if self._parsed.text != text:
            self._parsed = parse(text)
        return self._parsed

    def standing(self, keys: Sequence[Approver] | None = None) -> ArchiveState:
        """Return the newest sealed text, and why a newer one may be missing; keys: the sealing approvers."""
        keys = self._keys.sealing_approvers() if keys is None else keys
        standing = self.archive(keys).current(keys)
        if standing.good is None:
            return standing
        later = advanced(read_trail(self._trail), after=standing.good.link, keys=keys)
        # A trail copied over from another project of this machine tells of a text that was never this one's.
        if later is None or self.is_elsewhere(later):
            return standing
        return replace(standing, behind=f"{self._trail.name}/approved.yaml holds a later approval of your own key")

    def is_elsewhere(self, link: Link) -> bool:
        """Return whether the audit trail has the link's proposal take effect in other projects here, not in this."""
        asked = (link.proposal, self.archive().home.name)
        if asked not in self._known_elsewhere and made_elsewhere(
            self._records(TOLD), proposal=asked[0], archive=asked[1]
        ):
            self._known_elsewhere.add(asked)  # a proposal has one id, so what took effect there never will here
        return asked in self._known_elsewhere

    def file(self) -> FoundText:
        """Return the project's file as it is now; parsed again only when its bytes changed."""
        try:
            content = beneath.read(self.path.parent, self.path.name, most_bytes=MAX_BYTES)
        except OSError as error:
            return FoundText(None, None, f"it cannot be read ({error.strerror})")
        if content is None:
            return FoundText(None, None, MISSING)
        if self._found is None or self._found.content != content:
            text, wrong = decode(content)
            wrong = wrong or ("" if text.strip() else EMPTY)
            document = None if wrong else parse(text)
            if document is not None and document.problems:
                wrong = "; ".join(document.problems[:PROBLEMS_SHOWN])
                more = len(document.problems) - PROBLEMS_SHOWN
                wrong += f"; and {more} more" if more > 0 else ""
            self._found = FoundText(content, document, wrong)
        return self._found

    def readable_file(self) -> Document:
        """Return the project's file, all of it good.

        Raises BadInput: missing or broken; the message names the lines.
        """
        found = self.file()
        if found.document is None or found.wrong:
            raise BadInput(f"{self.path} cannot be used: {found.wrong}; mend it, or {RESTORE}")
        return found.document

    def bring_file(self, proposal: Proposal, sealed: SealedRevision, *, was: SealedRevision | None, at: str) -> None:
        """Make the applied proposal's change in the project's file too, keeping a backup.

        Foreign edits in the file stay, unapproved, and a broken file is left alone; `now` goes on warning about both.
        was: the approved text before, None when only finishing what a kill left. at: names the backup.
        """
        found = self.file()
        wanted = parse(sealed.text).digest
        if found.wrong in (MISSING, EMPTY):
            beneath.write(self.path.parent, self.path.name, sealed.text.encode())
            return
        if found.content is None or found.document is None or found.wrong or found.document.digest == wanted:
            return
        same_as_before = was is not None and found.document.digest == parse(was.text).digest
        if proposal.action is ProposalAction.ADOPT and not same_as_before:
            return
        try:
            text = apply_proposal(found.document.text, proposal)
        except MemoryAnchorError:
            return  # the file differs where the change would go
        if was is None and parse(text).digest != wanted:
            return
        folder = self.archive().home / "backups"
        make_private(folder)
        write_atomic(folder / f"{sealed.number:06d}-{at.replace(':', '')}.yaml", found.content)
        for old in sorted(folder.glob("*.yaml"))[:-BACKUPS_KEPT]:
            old.unlink(missing_ok=True)
        beneath.write(self.path.parent, self.path.name, text.encode())

    def first_text(self) -> str:
        """Return the file's text for a first approval, "" for none, no entries or an unfilled placeholder.

        Raises BadInput: it is broken.
        """
        if self.standing().good is not None or self.file().wrong in (MISSING, EMPTY):
            return ""
        document = self.readable_file()
        is_open = not document.entries or any(PLACEHOLDER in one.content for one in document.entries)
        return "" if is_open else document.text

    def first_document(self) -> Document:
        """Return the project's file for a first approval; a missing one is made.

        Raises BadInput: it is broken (an empty one counts as missing).
        """
        if self.file().wrong in (MISSING, EMPTY):
            beneath.write(self.path.parent, self.path.name, STARTER.encode())
        return self.readable_file()

    def ground(self) -> str:
        """Return the text that a proposal changes: the one in force, before the first approval the readable file."""
        served = self.now()
        if served.revision is not None:
            return served.document.text
        found = self.file()
        return found.document.text if found.document is not None and not found.wrong else NOTHING.text

    def _weigh(self, found: FoundText, standing: ArchiveState, initialised: bool) -> Served:
        if standing.good is not None:
            document = self._document(standing.good.text)
            warnings = (*_about_damage(standing), *_about_file(found, document))
            return Served(document, warnings, standing.good)
        if standing.behind:
            return Served(NOTHING, (OLDER.format(why=standing.behind),), None)
        if standing.revision is not None:
            return Served(NOTHING, (UNSEALED,), None)
        if initialised:
            return Served(NOTHING, (GONE,), None)
        if found.wrong in (MISSING, EMPTY):
            what = f"there is no {FILE_NAME}" if found.wrong == MISSING else f"{FILE_NAME} is empty"
            return Served(NOTHING, (f"no constitution is in force: {what}; {MAKE}",), None)
        broken = f" and cannot be read: {found.wrong}" if found.wrong else ""
        return Served(
            NOTHING,
            (f"no constitution is in force: {FILE_NAME} was never approved on this machine{broken}; {INIT}",),
            None,
        )

    def _archive_of(self, name: str) -> Archive:
        folder = self._home.parent / name
        if folder.parent != self._home.parent or name == "..":
            folder = self._home  # a name in the index is a folder's name, and leads nowhere else
        if name not in self._archives:
            recorded = lambda: numbers_of(self._records(TOLD), folder.name)  # noqa: E731
            self._archives[name] = Archive(folder, recorded, joint=self._joint)
        return self._archives[name]


def _about_damage(standing: ArchiveState) -> tuple[str, ...]:
    if standing.damaged:
        numbers = ", ".join(str(one) for one in standing.damaged[:PROBLEMS_SHOWN])
        return (f"approved text {numbers} of {FILE_NAME} is damaged; its sealed copy is served: restore a backup",)
    if standing.missing and standing.revision is not None:
        return (
            f"approved text {standing.revision.number} of {FILE_NAME} is gone; its sealed copy is served: "
            "run `memory-anchor doctor --audit`",
        )
    return ()


def _about_file(found: FoundText, approved: Document) -> tuple[str, ...]:
    if found.document is None or found.wrong:
        return (f"{FILE_NAME}: {found.wrong}; the approved text is served; mend it, or {RESTORE}",)
    if found.document.digest != approved.digest:
        lines = changed_lines(approved.text, found.document.text)
        return (f"{FILE_NAME}: {lines} from the approved text, which is served; {ADOPT}, or {RESTORE}",)
    return ()
