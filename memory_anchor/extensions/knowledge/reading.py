"""How documents of each source are found and read: files, pushed documents, and the history of a checkout.

Nothing outside of a source's folder is read and no link is followed (`nofollow`); every size and count has a bound, and
a document that is left out gets one sentence that names the file and the cure. Of a checkout only tracked files are
read, at HEAD, so that a locator reproduces; from the work tree where Git's hash says that it has the same text. Formats
that need a parser of untrusted bytes (PDF, DOCX, a converter's command) run in a process of their own, with limits of
time and memory (`convert`). HTML is read in one pass (`convert`), without its scripts.

Git history has one passage for each commit that states a decision, cited by the commit's id. Merges, bots and commits
that only tidy something are left out by rule, and counted. A reverted commit is left out for the one that reverts it
(and is back when that one is reverted). Commits that HEAD does not reach any more are removed. Git reads objects only
(`adapters.git`): no configuration, hook, filter or attribute of the repository is used. A message is untrusted text:
records are separated by the id of HEAD, which no message of an ancestor can contain, since the id is a hash over all of
them.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from memory_anchor.adapters import git
from memory_anchor.base import nofollow
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.extensions.knowledge import convert
from memory_anchor.extensions.knowledge.catalogue import BLOB_BYTES_MAX, PassagePlace
from memory_anchor.extensions.knowledge.sources import (
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
from memory_anchor.language.passages import CODE, Form, Passage, cut, format_of, plain
from memory_anchor.language.safe_regex import bounded, late, linear
from memory_anchor.language.safety import cleaned

if TYPE_CHECKING:
    from memory_anchor.extensions.knowledge.library import Library

FILE_BYTES_MAX = BLOB_BYTES_MAX
TEXT_CHARS_MAX = 4 * 1024 * 1024
FILES_MAX = 100_000
LISTING_BYTES_MAX = 64 * 1024 * 1024
IGNORE_BYTES_MAX = 64 * 1024
PATTERNS_MAX, EXCEPTIONS_MAX, PATTERN_CHARS_MAX = 100, 10, 80
"""Of an ignore file: whatever they say, they are ready in 40 ms and a path is matched in 1 ms."""
NAME_SHOWN = 120
PASSAGES_MAX = 20_000
"""Of one document."""
WITHOUT_GRAMMARS = (
    "source code is cut between blank lines; `pip install 'memory-anchor[code]'` and `memory-anchor knowledge sync`"
    " cut it by functions"
)
DOCUMENTS = frozenset("md markdown rst txt text adoc org html htm".split())  # noqa: SIM905
PLAIN = frozenset("json yaml yml toml csv tsv ini cfg conf log xml tex srt po".split())  # noqa: SIM905
CONVERTED = frozenset({"pdf", "docx"})
_MIME_FORMS: Mapping[str, Form] = {
    "text/markdown": "markdown",
    "text/html": "markdown",
    "application/pdf": "markdown",
    "text/x-rst": "rst",
}

COMMITS_MAX = 20_000
PAGE = 500
PATHS_SHOWN = 20
MESSAGE_CHARS = 6_000
TAGS_MAX = 500
PLAIN_WORDS = 4
"""Words from which on a subject without a body states a decision (Chinese: twice as many characters)."""
RULE = "1"
"""Version of the rule; a new one reads every history again."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMMIT_ID = late(r"[0-9a-f]{40,64}")
_REVERTS = late(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)
_TRAILER = late(r"^[A-Z][A-Za-z-]+: .*$", re.MULTILINE)
_BOT = late(r"\[bot\]|\bbot\b|^(dependabot|renovate|github-actions|pre-commit-ci|greenkeeper|snyk)\b", re.I)
_PREFIX = late(r"^\s*[\w()/.,* -]{1,30}!?:\s+")
_TIDIED = bounded(
    r"\b(typos?|whitespace|white space|formatting|reformat(ted)?|lint(er|ing)?|spelling|indentation|wip|"
    r"bump(ed|s)? (version|[\w./@-]+ (from|to))|version bump|update (changelog|lock ?file|copyright)|"
    r"prepare(d)? (for )?release|release v?\d[\w.]*|(initial|first) commit|"
    r"minor (fix(es)?|changes?|tweaks?)|cleanups?)\b|错别字|拼写|格式化|调整格式|更新版本号|初始提交",
    re.IGNORECASE,
)
_HAN = late(r"[\u3400-\u9fff]")


def passages_in(source: Source, document: SourceDocument) -> Iterator[tuple[str, PassagePlace]]:
    """Yield the passages of a document with their places, without secrets and private parts."""
    text = plain(document.text).encode("utf-8", "replace").decode("utf-8")  # a parser may leave lone surrogates
    commit = [Passage(text.strip(), 1, text.strip().count("\n") + 1)] if document.mime == "text/x-commit" else None
    for number, piece in enumerate(commit or cut(text, _form(source, document), document.ref)):
        if number >= PASSAGES_MAX:
            raise BadInput(f"{shown(document.ref)} has more than {PASSAGES_MAX} passages; split it")
        if clean := cleaned(piece.text).text.strip():
            page = sum(line <= piece.line_start for line in document.pages) or None
            lines = (piece.line_start, piece.line_end)
            yield clean, PassagePlace(document.ref, number, "", document.sha, *lines, page, piece.heading)


def _form(source: Source, document: SourceDocument) -> Form:
    form = _MIME_FORMS.get(document.mime) or format_of(document.ref)
    return "docstrings" if form == "python" and source.kind is SourceKind.REPO_DOCS else form


def checkout_of(ref: str) -> git.Repository:
    """Return the checkout that contains a folder. Raises BadInput: there is none, or it has objects of another one."""
    repository = git.find_repository(str(Path(ref).resolve()))
    if repository is None:
        raise BadInput(f"{ref!r} is no Git checkout of yours; run `git init`, or add it with --kind files")
    if borrowed := git.borrowed_objects(repository):
        raise BadInput(
            f"{ref!r} has objects outside of itself: {borrowed}; a checkout made by `git clone` alone has its own"
        )
    return repository


# --- history ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    id: str
    parents: int
    author: str
    at: datetime
    message: str
    touched: tuple[str, ...] = ()


def _history(source: Source, cursor: str, progress: SyncProgress) -> Listing:
    """Return the commits that state a decision; unchanged while HEAD and the rule are. Raises BadInput, Unavailable."""
    repository = checkout_of(source.ref)
    head = git.head_commit(repository)
    new_cursor = f"{RULE}:{head}"
    if cursor == new_cursor:
        return Listing({}, lambda _: SourceDocument("", "", ""), new_cursor, is_unchanged=True)
    commits: dict[str, Commit] = {}
    reverted: set[str] = set()
    for commit in _commits(repository, head) if head else ():
        if commit.id in reverted:
            progress.counted["reverted"] += 1
            continue
        reverted.update(_REVERTS.findall(commit.message))
        if why := why_skipped(commit.parents, commit.author, commit.message):
            progress.counted[why] += 1
        else:
            commits[commit.id] = commit
    tags = _tags(repository)
    stamps = {name: f"{RULE}{','.join(tags.get(name, ()))}" for name in commits}
    return Listing(stamps, lambda ref: _commit_document(commits[ref], tags.get(ref, [])), new_cursor)


def why_skipped(parents: int, author: str, message: str) -> str:
    """Return why a commit states no decision worth a passage, "" when it does."""
    subject, _, body = message.strip().partition("\n")
    if parents > 1:
        return "merge"
    if _BOT.search(author):
        return "bot"
    if _TRAILER.sub("", body).strip():
        return ""
    statement = _PREFIX.sub("", subject)
    words = len(statement.split()) + len(_HAN.findall(statement)) / 2
    return "trivial" if _TIDIED.search(subject) or words < PLAIN_WORDS else ""


def _commits(repository: git.Repository, head: str, most: int = COMMITS_MAX) -> Iterator[Commit]:
    """Yield a commit and its ancestors, newest first."""
    mark = f"\x1e{head}\x1f"
    end = f"\x1d{head}"
    form = f"--format={mark}%H%x1f%P%x1f%an%x1f%at%x1f%B{end}"
    for skipped in range(0, most, PAGE):
        page = (f"--skip={skipped}", f"--max-count={min(PAGE, most)}")
        log = ("log", form, "--no-show-signature", "--no-renames", *page)
        # listing paths compares trees, which takes too long in a huge repository
        output = git.run_git(repository, *log, "--name-only", head) or git.run_git(repository, *log, head)
        if output is None:
            raise Unavailable(f"Git did not answer in time in {repository.top}; it is asked again later")
        records = output.split(mark)[1:]
        for record in records:
            name, parents, author, at, rest = record.split("\x1f", 4)
            message, _, paths = rest.rpartition(end)
            touched = tuple(path for path in paths.split("\n") if path and path.isprintable())
            text = message.encode("utf-8", "replace").decode("utf-8").strip()
            yield Commit(name, len(parents.split()), author, _time(at), text[:MESSAGE_CHARS], touched)
        if len(records) < PAGE:
            return


def _time(seconds: str) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=int(seconds))
    except (ValueError, OverflowError):
        return _EPOCH


def _commit_document(commit: Commit, tags: list[str]) -> SourceDocument:
    touched = commit.touched
    more = f" and {len(touched) - PATHS_SHOWN} more" if len(touched) > PATHS_SHOWN else ""
    tagged = f", tag {', '.join(tags[:3])}" if tags else ""
    tail = f"Commit {commit.id[:12]}, {commit.at:%Y-%m-%d}, {commit.author[:80]}{tagged}"
    paths = f"\nTouched: {', '.join(touched[:PATHS_SHOWN])}{more}" if touched else ""
    title = commit.message.partition("\n")[0][:200]
    return SourceDocument(commit.id, f"{commit.message}\n\n{tail}{paths}", commit.id, "text/x-commit", title, commit.at)


def _tags(repository: git.Repository) -> dict[str, list[str]]:
    """Return commit -> names of its tags, from packed and loose refs, read without Git."""
    shared = Path(repository.shared)
    commits: dict[str, str] = {}
    try:
        packed = nofollow.read(shared, "packed-refs", most_bytes=git.PACKED_REFS_BYTES_MAX) or b""
        last = ""
        for line in text_lines(packed.decode("utf-8")):
            name, _, ref = line.partition(" ")
            if line.startswith("^") and last:  # the commit of the annotated tag above
                commits[last] = line[1:]
                continue
            last = ref.removeprefix("refs/tags/") if ref.startswith("refs/tags/") else ""
            if last and len(commits) < TAGS_MAX:
                commits[last] = name
        for file in nofollow.walk(shared, "refs/tags", most=TAGS_MAX, depth=4):
            loose = b"" if file.problem else nofollow.read(shared, file.ref, most_bytes=100) or b""
            name = loose.decode("ascii", "replace").strip()
            if _COMMIT_ID.fullmatch(name):
                peeled = git.run_git(repository, "rev-parse", "--verify", f"{name}^{{commit}}")
                commits[file.ref.removeprefix("refs/tags/")] = (peeled or "").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    tags: dict[str, list[str]] = {}
    for tag, commit in sorted(commits.items()):
        tags.setdefault(commit, []).append(tag[:80])
    return tags


# --- a checkout ------------------------------------------------------------------------------------------------------


def _checkout(source: Source, cursor: str, progress: SyncProgress) -> Listing:  # noqa: ARG001 - one shape for every scan
    """Return the tracked documents at HEAD. Raises BadInput: no checkout. Unavailable: Git is slow."""
    root = Path(source.ref).resolve()
    repository = checkout_of(source.ref)
    head = git.head_commit(repository)
    if head is None:
        return Listing({}, partial(_tracked_file, repository, {}, root))
    prefix = "" if root == Path(repository.top) else root.relative_to(repository.top).as_posix() + "/"
    ignored = _ignored(root, progress)
    tree = git.run_git(repository, "ls-tree", "-r", "-z", "--full-tree", head, most_bytes=LISTING_BYTES_MAX)
    if tree is None:
        raise Unavailable(f"Git did not answer in time in {root}; it is asked again later")
    stamps: dict[str, str] = {}
    for line in tree.split("\0"):
        mode_and_hash, _, path = line.partition("\t")
        ref = path.removeprefix(prefix)
        if not path.startswith(prefix) or not ref:
            continue
        if _suffix(ref) not in DOCUMENTS | {"py", "pyi"}:
            progress.counted["no document"] += 1
        elif ignored(ref):
            progress.counted["ignored"] += 1
        elif not mode_and_hash.startswith("100"):
            progress.skip(_left_out(ref, "it is a link or a submodule; add its target"))
        elif not ref.isprintable() or "�" in ref:
            progress.skip(_left_out(ref, "its name holds signs that cannot be shown; rename it"))
        elif len(stamps) >= FILES_MAX:
            progress.counted["beyond the bound"] += 1
        else:
            stamps[ref] = mode_and_hash.split()[2]
    return Listing(stamps, partial(_tracked_file, repository, stamps, root), head)


def _tracked_file(repository: git.Repository, stamps: Mapping[str, str], root: Path, ref: str) -> SourceDocument:
    """Return a tracked file at HEAD."""
    blob = stamps[ref]
    try:
        content = nofollow.read(root, ref, most_bytes=FILE_BYTES_MAX)
    except OSError:
        content = None
    hashed = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    if content is None or hashed(b"blob %d\0" % len(content) + content).hexdigest() != blob:
        content = _blob(repository, blob)
        if content is None:
            raise BadInput(_left_out(ref, f"it has more than {FILE_BYTES_MAX >> 20} MB or Git has it no more"))
    return document(ref, content, blob)


def _blob(repository: git.Repository, sha: str) -> bytes | None:
    content = git.run_git(repository, "cat-file", "blob", sha, most_bytes=FILE_BYTES_MAX)
    return content.encode("utf-8", "surrogateescape") if content is not None else None


# --- a folder --------------------------------------------------------------------------------------------------------


def _folder(source: Source, cursor: str, progress: SyncProgress) -> Listing:  # noqa: ARG001 - see `_checkout`
    """Return the files of a folder, or one file. Raises BadInput: it is not there."""
    path = Path(source.ref)
    root, only = (path.parent, path.name) if path.is_file() else (path, "")
    if not path.exists():
        raise BadInput(f"{source.ref} is not there any more; `memory-anchor knowledge remove {source.id}` forgets it")
    converter = source.options.get("converter", "")
    ignored = _ignored(root, progress)
    stamps: dict[str, str] = {}
    for file in _walk(root, only):
        suffix = _suffix(file.ref)
        is_document = suffix in DOCUMENTS | PLAIN | CONVERTED | CODE or suffix in ("", "py", "pyi")
        if file.problem:
            progress.skip(_left_out(file.ref, f"{file.problem}; {_cure(file.problem)}"))
        elif ignored(file.ref):
            progress.counted["ignored"] += 1
        elif not is_document and not converter:
            progress.counted["no document"] += 1
        elif not file.ref.isprintable():
            progress.skip(_left_out(file.ref, "its name holds signs that cannot be shown; rename it"))
        elif file.size > FILE_BYTES_MAX:
            progress.skip(_left_out(file.ref, f"it has {file.size} bytes, allowed are {FILE_BYTES_MAX}; split it"))
        else:
            if grammars.is_grammar_missing(suffix):
                progress.note(WITHOUT_GRAMMARS)
            stamps[file.ref] = f"{file.mtime_ns}:{file.size}:{file.inode}:{zlib.crc32(converter.encode())}"
    return Listing(stamps, partial(_file, root, converter))


def _walk(root: Path, only: str) -> Iterator[nofollow.FoundFile]:
    try:
        for file in nofollow.walk(root, "", most=FILES_MAX, depth=1 if only else DEPTH_MAX):
            parts = PurePosixPath(file.ref).parts
            if (not only or file.ref == only) and not SKIPPED_FOLDERS.intersection(parts[:-1]):
                yield file
    except OSError as error:
        raise BadInput(f"{root} cannot be listed ({error.strerror})") from None


def _cure(problem: str) -> str:
    """Return what can be done about a file that cannot be read."""
    if problem == nofollow.LINK:
        return "add what it points to"
    return "add that folder by itself" if problem == nofollow.TOO_DEEP else "take it away, or let yourself read it"


def _file(root: Path, converter: str, ref: str) -> SourceDocument:
    try:
        content = nofollow.read(root, ref, most_bytes=FILE_BYTES_MAX)
    except OSError as error:
        raise BadInput(_left_out(ref, f"it cannot be read ({error.strerror})")) from None
    if content is None and not root.exists():
        raise Unavailable(f"{root} went away while it was read; it is looked at again")
    if content is None:
        raise BadInput(_left_out(ref, "it went away while it was read; the next sync looks again"))
    return document(ref, content, hashlib.sha256(content).hexdigest(), converter=converter)


SCANS: Mapping[SourceKind, Scan] = {
    SourceKind.GIT_HISTORY: _history,
    SourceKind.REPO_DOCS: _checkout,
    SourceKind.FILES: _folder,
}
"""The scan of each kind of source that can be scanned again."""


# --- one document ----------------------------------------------------------------------------------------------------


def pushed(read: Callable[[], bytes | None], upload: Mapping[str, str]) -> SourceDocument:
    """Return an upload. read: returns its bytes, None where they are gone. Raises BadInput."""
    name = upload["name"]
    try:
        content = read()
    except OSError as error:
        raise BadInput(_left_out(name, error.strerror or "it cannot be read")) from None
    if content is None:
        raise BadInput(_left_out(name, "its bytes are gone; push it again"))
    return document(name, content, upload["sha"], mime=upload["mime"], at=datetime.fromisoformat(upload["at"]))


def current_document(library: Library, source: Source, ref: str) -> SourceDocument | None:
    """Return the current document of a source, of a checkout from the work tree; None when it is gone.

    Raises BadInput: it cannot be read.
    """
    root = Path(source.ref)
    if source.kind is SourceKind.GIT_HISTORY:
        repository = git.find_repository(str(root.resolve()))
        head = git.head_commit(repository) if repository is not None else None
        if repository is None or head is None:
            return None
        if git.run_git(repository, "merge-base", "--is-ancestor", ref, head) is None:
            return None
        (commit,) = _commits(repository, ref, most=1)
        return _commit_document(commit, _tags(repository).get(ref, []))
    if source.kind in (SourceKind.FILES, SourceKind.REPO_DOCS):
        folder = root.parent if root.is_file() else root
        if nofollow.status(folder, ref) is None:
            return None
        return _file(folder, source.options.get("converter", ""), ref)
    sha, _, mime = library.catalogue.stamps(source.id).get(ref, "").partition(":")
    upload = {"sha": sha, "name": ref, "mime": mime, "at": source.added_at.isoformat()}
    return pushed(partial(library.catalogue.document_bytes, source.id, ref), upload)


def cited_document(source: Source, ref: str, sha: str) -> SourceDocument | None:
    """Return a checkout's document of the hash that a citation names, None where Git does not have it.

    Raises BadInput: it cannot be read.
    """
    repository = git.find_repository(str(Path(source.ref).resolve())) if source.kind is SourceKind.REPO_DOCS else None
    if repository is None or not _COMMIT_ID.fullmatch(sha):
        return None
    content = _blob(repository, sha)
    return document(ref, content, sha) if content is not None else None


def document(
    ref: str, content: bytes, sha: str, *, mime: str = "", converter: str = "", at: datetime | None = None
) -> SourceDocument:
    """Return the text of a file. Raises BadInput: one sentence that names it, and what to do."""
    suffix = _suffix(ref)
    name = shown(ref)
    pages: tuple[int, ...] = ()
    has_utf16_mark = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    if suffix == "pdf" or mime == "application/pdf" or content.startswith(b"%PDF-"):
        text, pages = convert.pages_of(content, name)
        mime = "application/pdf"
    elif suffix == "docx" or mime == convert.DOCX:
        text, mime = convert.docx(content, name), "text/markdown"
    elif converter and suffix not in DOCUMENTS | PLAIN | CODE:
        text, mime = convert.by_command(converter, content, name), "text/markdown"
    elif b"\0" in content[:8_192] and not has_utf16_mark:
        raise BadInput(_left_out(ref, "it is binary; give its text, or a --converter that makes Markdown of it"))
    else:
        try:
            text = content.decode("utf-16" if has_utf16_mark else "utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadInput(_left_out(ref, f"byte {error.start} is not UTF-8; save it as UTF-8")) from None
        if len(text) > TEXT_CHARS_MAX:
            raise BadInput(_left_out(ref, f"it has {len(text)} characters, allowed are {TEXT_CHARS_MAX}; split it"))
        text = plain(text).replace("\0", "�")
        if suffix in ("html", "htm") or mime == "text/html":
            text, mime = convert.html(text, name), "text/html"
    heading = re.search(r"^#\s+(\S.*)$", text[:4_000], re.MULTILINE)
    title = heading[1].strip() if heading else PurePosixPath(ref).stem
    return SourceDocument(ref, text, sha, mime or "text/plain", title[:200], at, pages)


def shown(ref: str) -> str:
    """Return a file's name in a form that is safe in a sentence."""
    name = ascii(ref)[1:-1] if not ref.isprintable() else ref
    return name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}…"


def _left_out(ref: str, why: str) -> str:
    return f"{shown(ref)} is left out: {why}"


def _suffix(ref: str) -> str:
    return PurePosixPath(ref).suffix.lower().lstrip(".")


def _ignored(root: Path, progress: SyncProgress) -> Callable[[str], bool]:
    """Return a test for files that `.memoryignore` leaves out; its syntax is that of a .gitignore.

    Whoever made the folder wrote the patterns, so they are bounded and matched in linear time: `pathspec` reads them,
    `linear` runs them, neighbours of one kind as one expression. One sentence names those that are left out.
    """
    try:
        content = nofollow.read(root, IGNORE_FILE, most_bytes=IGNORE_BYTES_MAX) or b""
    except OSError as error:
        progress.note(f"{IGNORE_FILE} is left out: {error.strerror}; make it a small file of its own")
        content = b""
    rules: list[tuple[str, bool]] = []
    problems: list[str] = []
    for number, line in enumerate(content.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            try:
                rules.append(_rule(line, rules))
            except ValueError as error:
                problems.append(f"line {number} ({error})")
    if problems:
        progress.note(
            f"{len(problems)} patterns of {IGNORE_FILE} are left out, the first is {problems[0]}; change them"
        )
    groups = [
        (linear("|".join(f"(?:{expression})" for expression, _ in group)), leaves_out)
        for leaves_out, group in groupby(rules, key=itemgetter(1))
    ]
    groups.reverse()  # the last rule that matches decides
    return lambda ref: next((leaves_out for matches, leaves_out in groups if matches(ref)), False)


def _rule(line: str, before: Sequence[tuple[str, bool]]) -> tuple[str, bool]:
    """Return a line of an ignore file as an expression, and whether it leaves out. Raises ValueError: why it cannot."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    exceptions = sum(not leaves_out for _, leaves_out in before)
    if len(before) >= PATTERNS_MAX or (line.startswith("!") and exceptions >= EXCEPTIONS_MAX):
        raise ValueError(f"allowed are {PATTERNS_MAX} in all, {EXCEPTIONS_MAX} of them with !")
    if len(line) > PATTERN_CHARS_MAX:
        raise ValueError(f"it has {len(line)} characters, allowed are {PATTERN_CHARS_MAX}")
    expression, leaves_out = GitIgnoreSpecPattern.pattern_to_regex(line)
    if expression is None or leaves_out is None:
        raise ValueError("it is no pattern of a .gitignore")
    expression = expression.replace("(?P<ps_d>", "(?:")  # several of them become one expression
    linear(expression)
    return expression, leaves_out
