"""Git history as a source: one passage a commit that bears a decision, cited by the commit's id.

What is left out is left out by rule, and counted: merges, bots, and commits that only say that something was tidied.
A commit that was reverted is superseded by the one that reverts it (and stands again when that one is reverted). It
follows HEAD: commits that HEAD does not reach any more are gone.

Git is asked for objects alone (`adapters.git`): no configuration, hook, filter or attribute of the repository is read.
A message is a stranger's text: records are parted by the id of HEAD, which no message behind HEAD can contain, since
the id is a hash over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory_anchor import beneath
from memory_anchor.adapters import git
from memory_anchor.errors import BadInput, Unavailable
from memory_anchor.knowledge.sources import Listing, Source, SourceDocument, SyncProgress
from memory_anchor.language.bounded import bounded

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
    repository = git.found(str(Path(source.ref).resolve()))
    if repository is None:
        raise BadInput(f"{source.ref} is no Git checkout of yours; run `git init`, or name another folder")
    head = git.head(repository)
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
    repository = git.found(str(Path(folder).resolve()))
    head = git.head(repository) if repository is not None else None
    if repository is None or head is None:
        return None
    if git.asked(repository, "merge-base", "--is-ancestor", name, head) is None:
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
        answer = git.asked(repository, *how, "--name-only", head) or git.asked(repository, *how, head)
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
        for seen in beneath.walked(shared, "refs/tags", most=TAGS_MAX, depth=4):
            loose = b"" if seen.wrong else beneath.read(shared, seen.ref, most_bytes=100) or b""
            name = loose.decode("ascii", "replace").strip()
            if re.fullmatch(r"[0-9a-f]{40,64}", name):
                peeled = git.asked(repository, "rev-parse", "--verify", f"{name}^{{commit}}")
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
