"""What a shell line runs: each command by itself, with its program, words, options and the SQL that it sends.

A line is split as a shell does (`shlex`), at pipes, `&&`, `;`, lines and subshells; what another program runs (`sudo`,
`ssh host 'line'`, `docker exec`, `sh -c 'line'`) is a command of its own after it. Nothing is expanded, and a line with
an open quote is split at blanks. Rejected: a full grammar of bash, for lines that only have to be recognised.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from memory_anchor.base.json_values import text
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.words import listed, table

LINE_CHARS = 2_000
COMMANDS_MAX = 8
WORDS_MAX = 40
DEPTH_MAX = 3
"""Lines within lines: `ssh a "docker exec b sh -c '...'"`."""
_BREAKS = frozenset("();<>|&\n{}")
_SQL_STATEMENT = bounded(
    r"(?i)^\s*(select|insert|update|delete|drop|truncate|alter|create|grant|revoke|vacuum|reindex|explain|show|with)\b"
)
_SQL_WORD = late(r"[A-Za-z_][A-Za-z0-9_.$]{0,80}")
_ASSIGNMENT = late(r"[A-Za-z_][A-Za-z0-9_]{0,80}=")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command.

    words: operands and subcommands in their order, lower case. heads: those of them that are no value of an option and
    so may be subcommands. options: as written, and each letter of several in one. raw: what it is made of. writes_to:
    targets of `>`.
    """

    program: str
    words: tuple[str, ...]
    heads: tuple[str, ...]
    options: frozenset[str]
    raw: tuple[str, ...]
    writes_to: tuple[str, ...] = ()

    @property
    def is_sql(self) -> bool:
        return self.program == "sql"


@cache
def wrappers() -> dict[tuple[str, ...], int]:
    """Return what runs the command in its own arguments -> how many arguments come before that, without options."""
    pairs = (entry.rpartition("=") for entry in listed("programs", "within"))
    return {tuple(name.split("+")): int(count) for name, _, count in pairs}


def commands_of(line: str) -> list[ShellCommand]:
    """Return the commands of a shell line, in their order, at most `COMMANDS_MAX`.

    >>> [(one.program, one.words) for one in commands_of("cd ops && FOO=1 sudo git push -f origin")]
    [('cd', ('ops',)), ('git', ('push', 'origin'))]
    >>> [one.program for one in commands_of("ssh web 'docker exec -it db psql -c \\"DROP TABLE a\\"'")]
    ['ssh', 'docker', 'psql', 'sql']
    """
    return list(_commands(line[:LINE_CHARS], 0))[:COMMANDS_MAX]


def _commands(line: str, depth: int) -> Iterator[ShellCommand]:
    sends_sql = False
    for words, targets in _parts(line):
        if sends_sql and _SQL_STATEMENT.match(" ".join(words[:2])):  # of a here document
            yield from _sql(" ".join(words))
            continue
        for command in _unwrapped(words, targets, depth):
            sends_sql = sends_sql or command.program in listed("programs", "sql")
            yield command


def _parts(line: str) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield the words of each part of a line, and the files that it writes to."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        tokens = list(lexer)
    except ValueError:  # an open quote
        tokens = line.split()
    words: list[str] = []
    targets: list[str] = []
    redirect = ""
    for token in tokens:
        if token and set(token) <= _BREAKS:
            redirect = token if set(token) & set("<>") and not set(token) & set("();|\n") else ""
            if not redirect and words:
                yield words[:WORDS_MAX], tuple(targets)
                words, targets = [], []
        elif redirect:
            if ">" in redirect:
                targets.append(token)
            redirect = ""
        else:
            words.append(token.strip("`"))
    if words:
        yield words[:WORDS_MAX], tuple(targets)


def _unwrapped(words: Sequence[str], targets: tuple[str, ...], depth: int) -> Iterator[ShellCommand]:
    """Yield the command of these words, and those that it runs."""
    at = 0
    while at < len(words) and (_ASSIGNMENT.match(words[at]) or words[at] in ("then", "do", "else", "!", "$", "")):
        at += 1
    words = words[at:]
    if not words or words[0].isdigit():  # of `2>&1`
        return
    name = words[0].rpartition("/")[2].lower()
    inner = _inside(name, words)
    transparent = inner is not None and wrappers().get((name,)) == 0 and name not in ("npx", "bunx", "xargs", "watch")
    if not transparent:
        yield _command(name, words[: len(words) - len(inner or ())], targets)
    if depth >= DEPTH_MAX:
        return
    if inner is not None:
        if len(inner) == 1 and " " in inner[0]:
            yield from _commands(inner[0], depth + 1)
        else:
            yield from _unwrapped(inner, (), depth + 1)
    elif name in listed("programs", "shells"):
        for place, word in enumerate(words[1:], start=1):
            if not word.startswith("-") and (name == "eval" or words[place - 1].endswith("c")):
                yield from _commands(word, depth + 1)
                break
    elif name in listed("programs", "sql"):
        yield from _sql(" ; ".join(word for word in words[1:] if " " in word))


def _inside(name: str, words: Sequence[str]) -> list[str] | None:
    """Return the words of the command that these words run, None for none."""
    if name in ("python", "python3") and "-m" in words[1:3]:
        return list(words[words.index("-m") + 1 :])
    own = [name, *words[1:]]
    bare = [word for word in own[:6] if not word.startswith("-")]
    end = next((end for end in (3, 2, 1) if tuple(bare[:end]) in wrappers()), 0)
    if not end:
        return None
    if "--" in own:
        return own[own.index("--") + 1 :]
    skip = wrappers()[tuple(bare[:end])] + end
    valued = listed("programs", "valued_ssh" if name == "ssh" else "valued")
    at = count = 0
    while at < len(own):
        word = own[at]
        if word.startswith("-"):
            at += 2 if word in valued and count >= 1 else 1
        elif _ASSIGNMENT.match(word) and count >= end:
            at += 1
        elif count < skip:
            count += 1
            at += 1
        else:
            break
    rest = own[at:]
    return rest or None


def _command(name: str, words: Sequence[str], targets: tuple[str, ...]) -> ShellCommand:
    operands: list[str] = []
    heads: list[str] = []
    options: set[str] = set()
    for before, word in pairwise(words):
        if len(word) > 1 and word.startswith("-"):
            option = word.partition("=")[0]
            options.add(option)
            if not option.startswith("--") and option[1:].isalpha():
                options.update(f"-{letter}" for letter in option[1:])
        else:
            operands.append(word.lower())
            if not before.startswith("-") or "=" in before:
                heads.append(word.lower())
    return ShellCommand(name, tuple(operands), tuple(heads), frozenset(options), tuple(words), targets)


def _sql(statements: str) -> Iterator[ShellCommand]:
    for statement in statements.split(";"):
        if _SQL_STATEMENT.match(statement):
            words = [word.lower() for word in _SQL_WORD.findall(statement[:LINE_CHARS])][:WORDS_MAX]
            yield ShellCommand("sql", tuple(words), tuple(words), frozenset(), tuple(words))


def sql_of(content: str) -> list[ShellCommand]:
    """Return the statements of a file of SQL as commands."""
    return list(_sql(content[:LINE_CHARS]))[:COMMANDS_MAX]


def look_only() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return words, options and programs that change nothing."""
    group = table("look_only")
    parts = (frozenset(text(group[name]).split()) for name in ("words", "options", "programs"))
    words, options, programs = parts
    return words, options, programs
