"""Which text of L0 is in force, and the warnings if the project's file differs.

Only a text that a human sealed on this machine is ever in force, whatever the project's file contains. Before the first
approval, or if the sealed text is lost or lacks the approver's seal, L0 is empty and a warning names the human's
command: a freshly cloned repository must not instruct a model in its owner's name (rejected: serving the file with a
warning, which did just that). Files are compared by their bytes, not by time stamps: they are small, and an edit within
one tick of the file system's clock must not be missed. Invariant: `served` never raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memory_anchor.base import nofollow
from memory_anchor.base.files import make_private, write_atomic
from memory_anchor.domain.errors import BadInput, MemoryAnchorError
from memory_anchor.domain.model import Proposal, ProposalAction
from memory_anchor.domain.ports import AuditRecord
from memory_anchor.identity.approved import (
    Archive,
    ArchiveState,
    Link,
    SealedIndex,
    SealedRevision,
    later_own_link,
    numbers_of,
    read_trail,
    sign_link,
    took_effect_elsewhere,
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
from memory_anchor.identity.joint_seals import jointly_sealed
from memory_anchor.identity.keys import Approver, KeyRing, Signer

MISSING = "it is missing"
EMPTY = "it is empty"
"""What an interrupted write, or a shell's `>`, leaves for a moment."""
BACKUPS_KEPT = 50
AUDIT_KINDS = "constitution."
"""The prefix of the kinds of audit records about L0."""
RESTORE = f"`memory-anchor constitution show --yaml > {FILE_NAME}` brings it back"
ADOPT = "`memory-anchor constitution adopt` proposes the difference"
MAKE = "a human runs `memory-anchor init` on a terminal to make one"
INIT = "a human runs `memory-anchor init` on a terminal to approve it"
NOTHING = parse("")
"""What is in force before the first approval."""
OLDER = (
    "no constitution is in force: what is left of the approved texts may be an older one ({why}); "
    f"{INIT} anew, restores a backup, or takes it with `memory-anchor constitution adopt`; `memory-anchor doctor "
    "--audit` tells more"
)
LOST = (
    f"no constitution is in force: the approved text of {FILE_NAME} is gone from this machine; restore the identity "
    f"folder of the data folder from a backup, or {INIT} anew"
)
UNSEALED = (
    f"no constitution is in force: the approved text of {FILE_NAME} does not carry this machine's approver's seal; "
    f"restore the identity folder of the data folder from a backup, or {INIT} anew"
)


@dataclass(frozen=True, slots=True)
class Served:
    """The text in force. revision: its sealed text, None if none is in force."""

    document: Document
    warnings: tuple[str, ...]
    revision: SealedRevision | None


@dataclass(frozen=True, slots=True)
class ConstitutionFile:
    """The project's file. document: None if it is missing or not text; problem: why it cannot be used."""

    content: bytes | None
    document: Document | None
    problem: str = ""


class TextInForce:
    """Decides the text in force from one project's file and archive; caches the last answer."""

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
        """trail: the folder of the approvals' trail. records: audit records by prefix of kind. account: whose L0."""
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
        self._cached_file: ConstitutionFile | None = None
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
        other_name = self._index.home_of(self._at, self._keys.sealing_approvers() if keys is None else keys)
        return self._archive_of(other_name) if other_name else own

    def remember(self, signer: Signer | None = None) -> None:
        """Bind the project's folder to its archive. signer: if None, the folder only counts as initialised."""
        if self._at:
            self._index.add(self._at, self.archive().home.name, signer)

    def seal(
        self,
        signer: Signer,
        *,
        text: str,
        link: Link,
        applied: Sequence[str],
    ) -> SealedRevision:
        """Store a text as the newest approved one and bind the folder to it; durable on return."""
        sealed = self.archive().put(signer, text=text, link=link, applied=applied, keys=self._keys.sealing_approvers())
        self.remember(signer)
        return sealed

    def seal_first(
        self, signer: Signer, document: Document, *, by: str, at: str, applied: Sequence[str]
    ) -> tuple[SealedRevision, bool]:
        """Seal a first text; return it, and whether it continues a clone's trail that ends in this very text."""
        trail = read_trail(self._trail)
        continued: Link | None = trail[-1] if trail and trail[-1].digest == document.digest else None
        link = continued or sign_link(signer, digest=document.digest, previous="", proposal="", by=by, at=at)
        sealed = self.seal(signer, text=document.text, link=link, applied=applied)
        if continued is None:
            write_trail(self._trail, head=None, new=link)
        return sealed, continued is not None

    def served(self) -> Served:
        """Return the text in force with its warnings."""
        file, state = self.file(), self.archive_state()
        initialised = state.revision is not None or self.initialised
        key = (file.content, file.problem, state, initialised)
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._assess(file, state, initialised))
            if state.revision is not None:
                with contextlib.suppress(MemoryAnchorError):  # a read-only data folder only forgets a second path
                    self.remember()
        return self._cached[1]

    def approved(self) -> Document:
        """Return the text in force without looking at the project's file; an empty one if none is in force.

        Without a key here nothing here can be sealed, so the archive is not read.
        """
        keys = self._keys.sealing_approvers()
        if not keys:
            return NOTHING
        revision = self.archive_state(keys).good
        return NOTHING if revision is None else self._document(revision.text)

    def _document(self, text: str) -> Document:
        if self._parsed.text != text:
            self._parsed = parse(text)
        return self._parsed

    def archive_state(self, keys: Sequence[Approver] | None = None) -> ArchiveState:
        """Return the newest sealed text, and why a newer one may be missing. keys: the sealing approvers."""
        keys = self._keys.sealing_approvers() if keys is None else keys
        state = self.archive(keys).current(keys)
        if state.good is None:
            return state
        later_link = later_own_link(read_trail(self._trail), after=state.good.link, keys=keys)
        # A trail copied from another project of this machine has texts that were never this project's.
        if later_link is None or self.is_of_another_project(later_link):
            return state
        return replace(state, why_older=f"{self._trail.name}/approved.yaml holds a later approval of your own key")

    def is_of_another_project(self, link: Link) -> bool:
        """Return whether, by the audit trail, the link's proposal took effect only in other projects here."""
        key = (link.proposal, self.archive().home.name)
        if key not in self._known_elsewhere and took_effect_elsewhere(
            self._records(AUDIT_KINDS), proposal=key[0], archive=key[1]
        ):
            self._known_elsewhere.add(key)  # ids are unique, so what took effect there never will here
        return key in self._known_elsewhere

    def file(self) -> ConstitutionFile:
        """Return the project's file as it is now; parsed again only when its bytes changed."""
        try:
            content = nofollow.read(self.path.parent, self.path.name, most_bytes=MAX_BYTES)
        except OSError as error:
            return ConstitutionFile(None, None, f"it cannot be read ({error.strerror})")
        if content is None:
            return ConstitutionFile(None, None, MISSING)
        if self._cached_file is None or self._cached_file.content != content:
            text, problem = decode(content)
            problem = problem or ("" if text.strip() else EMPTY)
            document = None if problem else parse(text)
            if document is not None and document.problems:
                problem = "; ".join(document.problems[:PROBLEMS_SHOWN])
                more = len(document.problems) - PROBLEMS_SHOWN
                problem += f"; and {more} more" if more > 0 else ""
            self._cached_file = ConstitutionFile(content, document, problem)
        return self._cached_file

    def readable_file(self) -> Document:
        """Return the project's file if all of it is valid.

        Raises BadInput: missing or broken; the message names the lines.
        """
        file = self.file()
        if file.document is None or file.problem:
            raise BadInput(f"{self.path} cannot be used: {file.problem}; mend it, or {RESTORE}")
        return file.document

    def update_file(
        self, proposal: Proposal, sealed: SealedRevision, *, previous: SealedRevision | None, at: str
    ) -> None:
        """Apply an approved proposal to the project's file too, with a backup.

        Other edits in the file stay, unapproved, and a broken file is not touched; `served` still warns about both.
        previous: the approved text before, None when finishing after a kill. at: names the backup.
        """
        file = self.file()
        expected = parse(sealed.text).digest
        if file.problem in (MISSING, EMPTY):
            nofollow.write(self.path.parent, self.path.name, sealed.text.encode())
            return
        if file.content is None or file.document is None or file.problem or file.document.digest == expected:
            return
        same_as_before = previous is not None and file.document.digest == parse(previous.text).digest
        if proposal.action is ProposalAction.ADOPT and not same_as_before:
            return
        try:
            text = apply_proposal(file.document.text, proposal)
        except MemoryAnchorError:
            return  # the file differs where the change would go
        if previous is None and parse(text).digest != expected:
            return
        folder = self.archive().home / "backups"
        make_private(folder)
        write_atomic(folder / f"{sealed.number:06d}-{at.replace(':', '')}.yaml", file.content)
        for backup in sorted(folder.glob("*.yaml"))[:-BACKUPS_KEPT]:
            backup.unlink(missing_ok=True)
        nofollow.write(self.path.parent, self.path.name, text.encode())

    def first_text(self) -> str:
        """Return the file's text for a first approval, "" for none, no entries or an unfilled placeholder.

        Raises BadInput: it is broken.
        """
        if self.archive_state().good is not None or self.file().problem in (MISSING, EMPTY):
            return ""
        document = self.readable_file()
        is_unfilled = not document.entries or any(PLACEHOLDER in entry.content for entry in document.entries)
        return "" if is_unfilled else document.text

    def first_document(self) -> Document:
        """Return the project's file for a first approval; a missing or empty one is created.

        Raises BadInput: it is broken.
        """
        if self.file().problem in (MISSING, EMPTY):
            nofollow.write(self.path.parent, self.path.name, STARTER.encode())
        return self.readable_file()

    def text_to_change(self) -> str:
        """Return the text that a proposal changes: the one in force; before the first approval the readable file."""
        served = self.served()
        if served.revision is not None:
            return served.document.text
        file = self.file()
        return file.document.text if file.document is not None and not file.problem else NOTHING.text

    def _assess(self, file: ConstitutionFile, state: ArchiveState, initialised: bool) -> Served:
        if state.good is not None:
            document = self._document(state.good.text)
            warnings = (*_about_damage(state), *_about_file(file, document))
            return Served(document, warnings, state.good)
        if state.why_older:
            return Served(NOTHING, (OLDER.format(why=state.why_older),), None)
        if state.revision is not None:
            return Served(NOTHING, (UNSEALED,), None)
        if initialised:
            return Served(NOTHING, (LOST,), None)
        if file.problem in (MISSING, EMPTY):
            situation = f"there is no {FILE_NAME}" if file.problem == MISSING else f"{FILE_NAME} is empty"
            return Served(NOTHING, (f"no constitution is in force: {situation}; {MAKE}",), None)
        broken = f" and cannot be read: {file.problem}" if file.problem else ""
        return Served(
            NOTHING,
            (f"no constitution is in force: {FILE_NAME} was never approved on this machine{broken}; {INIT}",),
            None,
        )

    def _archive_of(self, name: str) -> Archive:
        folder = self._home.parent / name
        if folder.parent != self._home.parent or name == "..":
            folder = self._home  # a name in the index must be a plain folder name
        if name not in self._archives:
            recorded = lambda: numbers_of(self._records(AUDIT_KINDS), folder.name)  # noqa: E731
            self._archives[name] = Archive(folder, recorded, joint=self._joint)
        return self._archives[name]


def _about_damage(state: ArchiveState) -> tuple[str, ...]:
    if state.damaged:
        numbers = ", ".join(str(number) for number in state.damaged[:PROBLEMS_SHOWN])
        return (f"approved text {numbers} of {FILE_NAME} is damaged; its sealed copy is served: restore a backup",)
    if state.missing and state.revision is not None:
        return (
            f"approved text {state.revision.number} of {FILE_NAME} is gone; its sealed copy is served: "
            "run `memory-anchor doctor --audit`",
        )
    return ()


def _about_file(file: ConstitutionFile, approved: Document) -> tuple[str, ...]:
    if file.document is None or file.problem:
        return (f"{FILE_NAME}: {file.problem}; the approved text is served; mend it, or {RESTORE}",)
    if file.document.digest != approved.digest:
        lines = changed_lines(approved.text, file.document.text)
        return (f"{FILE_NAME}: {lines} from the approved text, which is served; {ADOPT}, or {RESTORE}",)
    return ()
