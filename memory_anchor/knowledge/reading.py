"""How documents of each source are found and read: files, what was pushed, and the history of a checkout.

Nothing outside of a source's folder is read and no link is followed (`beneath`); every size and count has a bound, and
what is left out is said in one sentence that names the file and the cure. Of a checkout only tracked files count, as
HEAD has them, so that a locator reproduces; they are read from the work tree where Git's hash says it is the same text.
Formats that need a parser of a stranger's bytes (PDF, DOCX, a converter's command) run in a process of their own, with
limits of time and memory (`convert`). HTML is read with the standard library: no dependency, and no scripts.

Of Git history there is one passage a commit that bears a decision, cited by the commit's id.

What is left out is left out by rule, and counted: merges, bots, and commits that only say that something was tidied.
A commit that was reverted is superseded by the one that reverts it (and stands again when that one is reverted). It
follows HEAD: commits that HEAD does not reach any more are gone.

Git is asked for objects alone (`adapters.git`): no configuration, hook, filter or attribute of the repository is read.
A message is a stranger's text: records are parted by the id of HEAD, which no message behind HEAD can contain, since
the id is a hash over all of them.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath

from memory_anchor import beneath
from memory_anchor.adapters import git
from memory_anchor.errors import BadInput, Unavailable
from memory_anchor.knowledge import convert
from memory_anchor.knowledge.catalogue import BLOB_BYTES_MAX, Place
from memory_anchor.knowledge.library import Library
from memory_anchor.knowledge.sources import (
    DEPTH_MAX,
    IGNORE_FILE,
    SKIPPED_FOLDERS,
    Listing,
    Scan,
    Source,
    SourceDocument,
    SourceKind,
    SyncProgress,
)
from memory_anchor.language import grammars
from memory_anchor.language.bounded import bounded
from memory_anchor.language.passages import CODE, Form, Passage, cut, format_of, plain
from memory_anchor.language.safety import cleaned

COMMITS_MAX = 20_000
PAGE = 500
PATHS_SHOWN = 20
MESSAGE_CHARS = 6_000
TAGS_MAX = 500
PLAIN_WORDS = 4
"""A subject without a body bears a decision from so many words on (Chinese: twice as many characters)."""
RULE = "1"
"""Raised when the rule changes; every history is read anew then."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)
_TRAILER = re.compile(r"^[A-Z][A-Za-z-]+: .*$", re.MULTILINE)
_BOT = re.compile(r"\[bot\]|\bbot\b|^(dependabot|renovate|github-actions|pre-commit-ci|greenkeeper|snyk)\b", re.I)
_PREFIX = re.compile(r"^\s*[\w()/.,* -]{1,30}!?:\s+")
_TIDIED = bounded(
    r"\b(typos?|whitespace|white space|formatting|reformat(ted)?|lint(er|ing)?|spelling|indentation|wip|"
    r"bump(ed|s)? (version|[\w./@-]+ (from|to))|version bump|update (changelog|lock ?file|copyright)|"
    r"prepare(d)? (for )?release|release v?\d[\w.]*|(initial|first) commit|"
    r"minor (fix(es)?|changes?|tweaks?)|cleanups?)\b|错别字|拼写|格式化|调整格式|更新版本号|初始提交",
    re.IGNORECASE,
)
_HAN = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Commit:
    id: str
    parents: int
    author: str
    at: datetime
    message: str
    touched: tuple[str, ...] = ()


def scan(source: Source, cursor: str, progress: SyncProgress) -> Listing:
    """Return the commits that bear a decision; unchanged while HEAD and the rule are. Raises BadInput, Unavailable."""
    repository = git.find_repository(str(Path(source.ref).resolve()))
    if repository is None:
        raise BadInput(f"{source.ref} is no Git checkout of yours; run `git init`, or name another folder")
    head = git.head_commit(repository)
    now = f"{RULE}:{head}"
    if cursor == now:
        return Listing({}, _nothing, now, is_unchanged=True)
    kept: dict[str, Commit] = {}
    reverted: set[str] = set()
    for commit in _commits(repository, head) if head else ():
        if commit.id in reverted:
            progress.counted["reverted"] += 1
            continue
        reverted.update(_REVERTS.findall(commit.message))
        if why := left_out(commit.parents, commit.author, commit.message):
            progress.counted[why] += 1
        else:
            kept[commit.id] = commit
    tags = _tags(repository)
    stamps = {name: f"{RULE}{','.join(tags.get(name, ()))}" for name in kept}
    return Listing(stamps, lambda ref: _document(kept[ref], tags.get(ref, [])), now)


def left_out(parents: int, author: str, message: str) -> str:
    """Return why a commit bears no decision that is worth a passage, "" when it does."""
    subject, _, body = message.strip().partition("\n")
    if parents > 1:
        return "merge"
    if _BOT.search(author):
        return "bot"
    if _TRAILER.sub("", body).strip():
        return ""
    bare = _PREFIX.sub("", subject)
    says = len(bare.split()) + len(_HAN.findall(bare)) / 2
    return "trivial" if _TIDIED.search(subject) or says < PLAIN_WORDS else ""


def commit_of(folder: str, name: str) -> SourceDocument | None:
    """Return a commit as a document, None when HEAD does not reach it any more."""
    repository = git.find_repository(str(Path(folder).resolve()))
    head = git.head_commit(repository) if repository is not None else None
    if repository is None or head is None:
        return None
    if git.run_git(repository, "merge-base", "--is-ancestor", name, head) is None:
        return None
    (commit,) = _commits(repository, name, most=1)
    return _document(commit, _tags(repository).get(name, []))


def _commits(repository: git.Repository, head: str, most: int = COMMITS_MAX) -> Iterator[Commit]:
    """Yield the commits behind a commit, newest first."""
    mark = f"\x1e{head}\x1f"
    end = f"\x1d{head}"
    shape = f"--format={mark}%H%x1f%P%x1f%an%x1f%at%x1f%B{end}"
    for skipped in range(0, most, PAGE):
        page = (f"--skip={skipped}", f"--max-count={min(PAGE, most)}")
        how = ("log", shape, "--no-show-signature", "--no-renames", *page)
        # naming paths compares trees, which a huge repository may not do in time
        answer = git.run_git(repository, *how, "--name-only", head) or git.run_git(repository, *how, head)
        if answer is None:
            raise Unavailable(f"Git did not answer in time in {repository.top}; it is asked again later")
        records = answer.split(mark)[1:]
        for record in records:
            name, parents, author, at, rest = record.split("\x1f", 4)
            message, _, paths = rest.rpartition(end)
            touched = tuple(path for path in paths.split("\n") if path and path.isprintable())
            text = message.encode("utf-8", "replace").decode("utf-8").strip()
            yield Commit(name, len(parents.split()), author, _time(at), text[:MESSAGE_CHARS], touched)
        if len(records) < PAGE:
            return


def _document(commit: Commit, tags: list[str]) -> SourceDocument:
    touched = commit.touched
    more = f" and {len(touched) - PATHS_SHOWN} more" if len(touched) > PATHS_SHOWN else ""
    tagged = f", tag {', '.join(tags[:3])}" if tags else ""
    tail = f"Commit {commit.id[:12]}, {commit.at:%Y-%m-%d}, {commit.author[:80]}{tagged}"
    paths = f"\nTouched: {', '.join(touched[:PATHS_SHOWN])}{more}" if touched else ""
    title = commit.message.partition("\n")[0][:200]
    return SourceDocument(commit.id, f"{commit.message}\n\n{tail}{paths}", commit.id, "text/x-commit", title, commit.at)


def _tags(repository: git.Repository) -> dict[str, list[str]]:
    """Return commit -> names of its tags, of packed and loose refs, without letting Git read any of them."""
    shared = Path(repository.shared)
    named: dict[str, str] = {}
    try:
        packed = beneath.read(shared, "packed-refs", most_bytes=git.PACKED_REFS_BYTES_MAX) or b""
        last = ""
        for line in packed.decode("utf-8").splitlines():
            name, _, ref = line.partition(" ")
            if line.startswith("^") and last:
                named[last] = line[1:]
            elif (last := ref.removeprefix("refs/tags/") if ref.startswith("refs/tags/") else "") and len(
                named
            ) < TAGS_MAX:
                named[last] = name
        for seen in beneath.walk(shared, "refs/tags", most=TAGS_MAX, depth=4):
            loose = b"" if seen.problem else beneath.read(shared, seen.ref, most_bytes=100) or b""
            name = loose.decode("ascii", "replace").strip()
            if re.fullmatch(r"[0-9a-f]{40,64}", name):
                peeled = git.run_git(repository, "rev-parse", "--verify", f"{name}^{{commit}}")
                named[seen.ref.removeprefix("refs/tags/")] = (peeled or "").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    found: dict[str, list[str]] = {}
    for tag, commit in sorted(named.items()):
        found.setdefault(commit, []).append(tag[:80])
    return found


def _time(seconds: str) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=int(seconds))
    except (ValueError, OverflowError):
        return _EPOCH


def _nothing(ref: str) -> SourceDocument:
    raise BadInput(f"{ref} is no commit here")


FILE_BYTES_MAX = BLOB_BYTES_MAX
TEXT_CHARS_MAX = 4 * 1024 * 1024
FILES_MAX = 100_000
LISTING_BYTES_MAX = 64 * 1024 * 1024
IGNORE_BYTES_MAX = 64 * 1024
NAME_SHOWN = 120
WITHOUT_GRAMMARS = (
    "source code is cut between blank lines; `pip install 'memory-anchor[code]'` and `memory-anchor knowledge sync`"
    " cut it by functions"
)
PASSAGES_MAX = 20_000
"""Of one document."""

DOCUMENTS = frozenset("md markdown rst txt text adoc org html htm".split())  # noqa: SIM905
PLAIN = frozenset("json yaml yml toml csv tsv ini cfg conf log xml tex srt po".split())  # noqa: SIM905
CONVERTED = frozenset({"pdf", "docx"})
_MIME_FORMS: Mapping[str, Form] = {
    "text/markdown": "markdown",
    "text/html": "markdown",
    "application/pdf": "markdown",
    "text/x-rst": "rst",
}


def passages_of(source: Source, document: SourceDocument) -> Iterator[tuple[str, Place]]:
    """Yield what of a document is kept, with its places; secrets and private parts stay out."""
    text = plain(document.text).encode("utf-8", "replace").decode("utf-8")  # a parser may leave lone surrogates
    commit = [Passage(text.strip(), 1, text.strip().count("\n") + 1)] if document.mime == "text/x-commit" else None
    for number, piece in enumerate(commit or cut(text, _form(source, document), document.ref)):
        if number >= PASSAGES_MAX:
            raise BadInput(f"{shown(document.ref)} has more than {PASSAGES_MAX} passages; split it")
        said = cleaned(piece.text).text.strip()
        if said:
            page = sum(line <= piece.line_start for line in document.pages) or None
            lines = (piece.line_start, piece.line_end)
            yield said, Place(document.ref, number, "", document.sha, *lines, page, piece.heading)


def _form(source: Source, document: SourceDocument) -> Form:
    form = _MIME_FORMS.get(document.mime) or format_of(document.ref)
    return "docstrings" if form == "python" and source.kind is SourceKind.REPO_DOCS else form


# --- a checkout --------------------------------------------------------------------------------------------------


def _checkout(source: Source, cursor: str, progress: SyncProgress) -> Listing:  # noqa: ARG001 - one shape for every scan
    """Return the tracked documents at HEAD. Raises BadInput: no checkout. Unavailable: Git is slow."""
    root = Path(source.ref).resolve()
    repository = git.find_repository(str(root))
    if repository is None:
        raise BadInput(f"{source.ref} is no Git checkout of yours; add it with --kind files")
    head = git.head_commit(repository)
    if head is None:
        return Listing({}, partial(_blob, repository, {}, root))
    prefix = "" if root == Path(repository.top) else root.relative_to(repository.top).as_posix() + "/"
    ignored = _ignored(root)
    listed = git.run_git(repository, "ls-tree", "-r", "-z", "--full-tree", head, most_bytes=LISTING_BYTES_MAX)
    if listed is None:
        raise Unavailable(f"Git did not answer in time in {root}; it is asked again later")
    stamps: dict[str, str] = {}
    for line in listed.split("\0"):
        how, _, path = line.partition("\t")
        ref = path.removeprefix(prefix)
        if not path.startswith(prefix) or not ref:
            continue
        suffix = PurePosixPath(ref).suffix.lower().lstrip(".")
        if suffix not in DOCUMENTS and suffix not in ("py", "pyi"):
            progress.counted["no document"] += 1
        elif ignored(ref):
            progress.counted["ignored"] += 1
        elif not how.startswith("100"):
            progress.skip(f"{shown(ref)} is left out: it is a link or a submodule; add its target")
        elif not ref.isprintable() or "�" in ref:
            progress.skip(f"{shown(ref)} is left out: its name holds signs that cannot be shown; rename it")
        elif len(stamps) >= FILES_MAX:
            progress.counted["beyond the bound"] += 1
        else:
            stamps[ref] = how.split()[2]
    return Listing(stamps, partial(_blob, repository, stamps, root), head)


def _blob(repository: git.Repository, stamps: Mapping[str, str], root: Path, ref: str) -> SourceDocument:
    """Return a tracked file as HEAD has it."""
    blob = stamps[ref]
    try:
        content = beneath.read(root, ref, most_bytes=FILE_BYTES_MAX)
    except OSError:
        content = None
    hashed = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    if content is None or hashed(b"blob %d\0" % len(content) + content).hexdigest() != blob:
        told = git.run_git(repository, "cat-file", "blob", blob, most_bytes=FILE_BYTES_MAX)
        if told is None:
            raise BadInput(
                f"{shown(ref)} is left out: it has more than {FILE_BYTES_MAX >> 20} MB or Git has it no more"
            )
        content = told.encode("utf-8", "surrogateescape")
    return document(ref, content, blob)


# --- a folder ----------------------------------------------------------------------------------------------------


def _folder(source: Source, cursor: str, progress: SyncProgress) -> Listing:  # noqa: ARG001 - see `_checkout`
    """Return the files of a folder, or one file. Raises BadInput: it is not there."""
    path = Path(source.ref)
    root, only = (path.parent, path.name) if path.is_file() else (path, "")
    if not path.exists():
        raise BadInput(f"{source.ref} is not there any more; `memory-anchor knowledge remove {source.id}` forgets it")
    converter = source.options.get("converter", "")
    ignored = _ignored(root)
    stamps: dict[str, str] = {}
    for seen in _walked(root, only):
        suffix = PurePosixPath(seen.ref).suffix.lower().lstrip(".")
        known = suffix in DOCUMENTS | PLAIN | CONVERTED | CODE or suffix in ("", "py", "pyi")
        if seen.problem:
            progress.skip(f"{shown(seen.ref)} is left out: {seen.problem}; {_cure(seen.problem)}")
        elif ignored(seen.ref):
            progress.counted["ignored"] += 1
        elif not known and not converter:
            progress.counted["no document"] += 1
        elif not seen.ref.isprintable():
            progress.skip(f"{shown(seen.ref)} is left out: its name holds signs that cannot be shown; rename it")
        elif seen.size > FILE_BYTES_MAX:
            size = f"it has {seen.size} bytes, allowed are {FILE_BYTES_MAX}"
            progress.skip(f"{shown(seen.ref)} is left out: {size}; split it")
        else:
            if grammars.is_grammar_missing(suffix):
                progress.note(WITHOUT_GRAMMARS)
            stamps[seen.ref] = f"{seen.mtime_ns}:{seen.size}:{seen.inode}:{zlib.crc32(converter.encode())}"
    return Listing(stamps, partial(_file, root, converter))


def _walked(root: Path, only: str) -> Iterator[beneath.FoundFile]:
    try:
        for seen in beneath.walk(root, "", most=FILES_MAX, depth=1 if only else DEPTH_MAX):
            parts = PurePosixPath(seen.ref).parts
            if (not only or seen.ref == only) and not SKIPPED_FOLDERS.intersection(parts[:-1]):
                yield seen
    except OSError as error:
        raise BadInput(f"{root} cannot be listed ({error.strerror})") from None


def _cure(wrong: str) -> str:
    """Return what can be done about something that a walk does not enter."""
    if wrong == beneath.LINK:
        return "add what it points to"
    return "add that folder by itself" if wrong == beneath.TOO_DEEP else "take it away, or let yourself read it"


def _file(root: Path, converter: str, ref: str) -> SourceDocument:
    try:
        content = beneath.read(root, ref, most_bytes=FILE_BYTES_MAX)
    except OSError as error:
        raise BadInput(f"{shown(ref)} is left out: it cannot be read ({error.strerror})") from None
    if content is None and not root.exists():
        raise Unavailable(f"{root} went away while it was read; it is looked at again")
    if content is None:
        raise BadInput(f"{shown(ref)} is left out: it went away while it was read; the next sync looks again")
    return document(ref, content, hashlib.sha256(content).hexdigest(), converter=converter)


# --- pushed ------------------------------------------------------------------------------------------------------


def pushed(bytes_of: Callable[[], bytes | None], what: Mapping[str, str]) -> SourceDocument:
    """Return an upload. bytes_of: returns its bytes, None where they are gone. Raises BadInput."""
    try:
        content = bytes_of()
    except OSError as error:
        raise BadInput(f"{shown(what['name'])} is left out: {error.strerror}") from None
    if content is None:
        raise BadInput(f"{shown(what['name'])} is left out: its bytes are gone; push it again")
    at = datetime.fromisoformat(what["at"])
    return document(what["name"], content, what["sha"], mime=what["mime"], at=at)


def now_of(library: Library, source: Source, ref: str) -> SourceDocument | None:
    """Return a document as its source has it now, the work tree's text for a checkout; None when it is gone.

    Raises BadInput: it cannot be read.
    """
    root = Path(source.ref)
    if source.kind is SourceKind.GIT_HISTORY:
        return commit_of(source.ref, ref)
    if source.kind in (SourceKind.FILES, SourceKind.REPO_DOCS):
        folder = root.parent if root.is_file() else root
        if beneath.status(folder, ref) is None:
            return None
        return _file(folder, source.options.get("converter", ""), ref)
    sha, _, mime = library.catalogue.stamps(source.id).get(ref, "").partition(":")
    what = {"sha": sha, "name": ref, "mime": mime, "at": source.added_at.isoformat()}
    return pushed(partial(library.catalogue.kept, source.id, ref), what)


def cited_of(source: Source, ref: str, sha: str) -> SourceDocument | None:
    """Return a document of a checkout as Git kept it under the hash that a citation names; None when it has it no more.

    Raises BadInput: it cannot be read.
    """
    repository = git.find_repository(str(Path(source.ref).resolve())) if source.kind is SourceKind.REPO_DOCS else None
    if repository is None or not re.fullmatch(r"[0-9a-f]{40,64}", sha):
        return None
    told = git.run_git(repository, "cat-file", "blob", sha, most_bytes=FILE_BYTES_MAX)
    return document(ref, told.encode("utf-8", "surrogateescape"), sha) if told is not None else None


# --- formats -----------------------------------------------------------------------------------------------------


def document(
    ref: str, content: bytes, sha: str, *, mime: str = "", converter: str = "", at: datetime | None = None
) -> SourceDocument:
    """Return the text of a file. Raises BadInput: one sentence that names it, and what to do."""
    suffix = PurePosixPath(ref).suffix.lower().lstrip(".")
    name = shown(ref)
    if suffix == "pdf" or mime == "application/pdf" or content.startswith(b"%PDF-"):
        text, pages = convert.pages_of(content, name)
        return SourceDocument(ref, text, sha, "application/pdf", _title(text, ref), at, pages)
    if suffix == "docx" or mime == convert.DOCX:
        text = convert.docx(content, name)
        return SourceDocument(ref, text, sha, "text/markdown", _title(text, ref), at)
    if converter and suffix not in DOCUMENTS | PLAIN | CODE:
        text = convert.by_command(converter, content, name)
        return SourceDocument(ref, text, sha, "text/markdown", _title(text, ref), at)
    if b"\0" in content[:8_192] and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(f"{name} is left out: it is binary; give its text, or a --converter that makes Markdown of it")
    try:
        encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is left out: byte {error.start} is not UTF-8; save it as UTF-8") from None
    if len(text) > TEXT_CHARS_MAX:
        raise BadInput(f"{name} is left out: it has {len(text)} characters, allowed are {TEXT_CHARS_MAX}; split it")
    text = plain(text).replace("\0", "�")
    if suffix in ("html", "htm") or mime == "text/html":
        text = convert.html(text, name)
        mime = "text/html"
    return SourceDocument(ref, text, sha, mime or "text/plain", _title(text, ref), at)


def shown(ref: str) -> str:
    """Return a file's name as a sentence may hold it."""
    said = ascii(ref)[1:-1] if not ref.isprintable() else ref
    return said if len(said) <= NAME_SHOWN else f"{said[:NAME_SHOWN]}…"


def _title(text: str, ref: str) -> str:
    head = re.search(r"^#\s+(\S.*)$", text[:4_000], re.MULTILINE)
    return head[1].strip()[:200] if head else PurePosixPath(ref).stem[:200]


def _ignored(root: Path) -> Callable[[str], bool]:
    """Return what says whether `.memoryignore` leaves a file out; its lines are those of a .gitignore."""
    try:
        content = beneath.read(root, IGNORE_FILE, most_bytes=IGNORE_BYTES_MAX) or b""
    except OSError:
        content = b""
    rules: list[tuple[re.Pattern[str], bool]] = []
    for line in content.decode("utf-8", "replace").splitlines():
        said = line.strip()
        if said and not said.startswith("#"):
            rules.append((_pattern(said.lstrip("!")), not said.startswith("!")))

    def leaves_out(ref: str) -> bool:
        said = False
        for pattern, out in rules:
            if pattern.match(ref):
                said = out
        return said

    return leaves_out


def _pattern(said: str) -> re.Pattern[str]:
    anchored = "/" in said.rstrip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", said.strip("/"))
    signs = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(signs.get(part, re.escape(part)) for part in parts)
    return re.compile(("" if anchored else "(?:.*/)?") + body + (r"/.*" if said.endswith("/") else r"(?:/.*)?") + r"\Z")


SCANS: Mapping[SourceKind, Scan] = {
    SourceKind.GIT_HISTORY: scan,
    SourceKind.REPO_DOCS: _checkout,
    SourceKind.FILES: _folder,
}
"""How each kind of source that can be looked at again is scanned."""
