"""What an agent is told when it acts: what is known of exactly this command or file, and after a failure its fix.

A warning at the act changes what is done; the same words at the turn's start hardly do. So it has to be rare: what is
told must be about this command or this file (`language/acts.py`), not about its tool, and each memory is told once. It
is found by words, in milliseconds; a line is only embedded where an effect agrees and no thing says more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Epistemic, Layer, Memory, MemoryType
from memory_anchor.hooks.brief import PROMPT_HEAD, PROMPT_TOKENS, Brief, RecalledLine, fenced, lines_within
from memory_anchor.language.acts import ActText, CommandAct, Concern, acts_of, concern, search_terms
from memory_anchor.language.commands import ShellCommand, commands_of, sql_of
from memory_anchor.language.indexing import phrase_text
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.terms import normal, terms
from memory_anchor.language.words import listed
from memory_anchor.recall.fixes import Failure
from memory_anchor.use_cases.memory import MemoryAnchor

TRAPS = {
    MemoryType.INSTRUCTION,
    MemoryType.PREFERENCE,
    MemoryType.DECISION,
    MemoryType.BUGFIX,
    MemoryType.WORKFLOW,
    MemoryType.DISCOVERY,
}
"""What may be a trap: what happened once and plain facts are one only where they name the very file or what is run word
for word."""
FIXES = (MemoryType.BUGFIX, MemoryType.FACT, MemoryType.DISCOVERY, MemoryType.WORKFLOW, MemoryType.INSTRUCTION)
WHOLE_WORDS = 3
"""Words of a command from which naming it is no accident: "docker compose down", not "terraform apply"."""
WARNINGS = 2
READ = 32
"""Memories that are compared with an act: those that share most words with it."""
TERMS_MAX = 160
NAMED_BY_FEW = 3
"""A program by itself is warned of where no more memories name it."""
NEAR = 0.2
"""Centred cosine from which a line is about a memory that opens with its effect: of our pairs three in four are above
it, and of a line with any other memory one in six."""
PATH_PARTS, FILES_MAX, PATH_CHARS = 7, 6, 300
_PATCHED = bounded(r"(?m)^\*\*\* (?:Add|Update|Delete) File: (.{1,300})$")
"""The files of a patch as Codex writes it."""
_FILE = bounded(r"[A-Za-z0-9_.-]*/[A-Za-z0-9_./-]+|[A-Za-z0-9_-]+\.[A-Za-z]{1,5}")


def for_tool(anchor: MemoryAnchor, tool_input: Mapping[str, Json], known: frozenset[str]) -> Brief:
    """Return what is known of the command or file that a tool is about to run or change.

    tool_input: as the client gives it; of a patch its files count.
    """
    path = str(tool_input.get("file_path") or tool_input.get("notebook_path") or tool_input.get("path") or "")
    line = str(tool_input.get("command") or "")
    patched = _PATCHED.findall(line)[:FILES_MAX]
    commands = [] if patched else commands_of(line)
    if path.endswith(".sql"):
        commands = sql_of(_written(tool_input))
    acts = acts_of(commands, line)
    changed = [one.strip() for one in (path, *patched, *_changed_by(acts)) if one]
    named = [word for act in acts if not act.look_only for word in act.command.words if _FILE.fullmatch(word)]
    changed, named = ([_within(anchor, one) for one in paths[:FILES_MAX]] for paths in (changed, named))
    found = _sharing(anchor, acts, [*changed, *named])
    if not found:
        return Brief()
    texts = {memory.id: phrase_text(memory) for memory in found}
    files = [memory for memory in found if _names_one(memory, texts[memory.id], changed, named)]
    traps = [memory for memory in found if memory.type in TRAPS or memory.epistemic is Epistemic.REFUTED]
    whole = [memory for memory in found if _in_full(memory, _whole_commands(commands))]
    facts = [
        memory for memory in found if memory.layer is Layer.VERIFIED_FACT and _in_full(memory, _whole_paths(changed))
    ]
    return _warnings(
        anchor,
        [*_about(anchor, traps, acts, line), *(memory for memory in files if memory in traps), *whole, *facts],
        known,
    )


def for_failure(anchor: MemoryAnchor, command: str, error: str, known: frozenset[str]) -> Brief:
    """Return known fixes of a failing command, at most `WARNINGS`. error: what it printed."""
    return _warnings(anchor, anchor.fixes_for(Failure.of(command, error), FIXES), known) if error.strip() else Brief()


def _sharing(anchor: MemoryAnchor, acts: Sequence[CommandAct], paths: Sequence[str]) -> list[Memory]:
    """Return the memories that share words with what is done."""
    words = [term for path in paths for term in terms(path)]
    words = list(dict.fromkeys([*words, *search_terms(acts)]))[:TERMS_MAX]
    return anchor.sharing_terms(words, limit=READ) if words else []


def _about(anchor: MemoryAnchor, memories: Sequence[Memory], acts: Sequence[CommandAct], line: str) -> list[Memory]:
    """Return the memories that are about one of these acts, the most exact first."""
    exact: list[Memory] = []
    by_program: dict[str, list[Memory]] = {}
    by_effect: list[Memory] = []
    perhaps: list[Memory] = []
    for memory in memories:
        reading = ActText.of(memory.content)
        best = max(((concern(reading, act), act) for act in acts), key=lambda pair: pair[0].value, default=None)
        match best:
            case (Concern.COMMAND, _):
                exact.append(memory)
            case (Concern.PROGRAM, act):
                by_program.setdefault(act.command.program, []).append(memory)
            case (Concern.EFFECT, _):
                by_effect.append(memory)
            case (Concern.PERHAPS, _):
                perhaps.append(memory)
    if perhaps and not (exact or by_effect):
        near = anchor.cosines_with(line, perhaps)
        by_effect = [memory for memory, cosine in zip(perhaps, near, strict=True) if cosine >= NEAR]
    few = [memory for group in by_program.values() if len(group) <= NAMED_BY_FEW for memory in group]
    return [*exact, *few, *by_effect]


def _changed_by(acts: Sequence[CommandAct]) -> list[str]:
    """Return the files that commands write to or change."""
    writers = listed("programs", "writers")
    changed = [
        word
        for act in acts
        if act.command.program in writers and not _prints(act.command)
        for word in act.command.words
    ]
    return [
        *(file for act in acts for file in act.command.writes_to),
        *(word for word in changed if _FILE.fullmatch(word)),
    ]


def _prints(command: ShellCommand) -> bool:
    """Return whether an editor of streams leaves its files as they are."""
    return command.program in ("sed", "perl") and "-i" not in command.options


def _written(tool_input: Mapping[str, Json]) -> str:
    given = tool_input.get("edits")
    edits = [edit.get("new_string") for edit in given if isinstance(edit, Mapping)] if isinstance(given, list) else []
    return "\n".join(str(part) for part in (tool_input.get("content"), tool_input.get("new_string"), *edits) if part)


def _within(anchor: MemoryAnchor, path: str) -> str:
    return path[-PATH_CHARS:].removeprefix(anchor.project.root or "").strip("/")


def _names_one(memory: Memory, text: str, changed: Sequence[str], named: Sequence[str]) -> bool:
    """Return whether a memory names one of these files, or a folder of one that changes."""
    if not (changed or named):
        return False
    own = [citation.ref.lower() for citation in memory.citations if citation.kind == "file"]
    for path, folders in (*((path, True) for path in changed), *((path, False) for path in named)):
        file = path.rpartition("/")[2].lower()
        same = [ref for ref in own if ref.partition(":")[0].rpartition("/")[2] == file]
        if same and not any(path.lower().endswith(ref.partition(":")[0]) for ref in same):
            continue  # a file of the same name elsewhere
        if (pattern := path_pattern(path, folders=folders)) is not None and pattern.search(text):
            return True
    return False


def path_pattern(path: str, *, folders: bool) -> re.Pattern[str] | None:
    """Return what names this file in a normalised text: the last parts of its path, or its name; None for no name.

    folders: what names a folder of it counts too, of one part alone with a slash behind it ("generated/").

    >>> bool(path_pattern("api/v1/users.py", folders=True).search("everything in api/v1 is frozen"))
    True
    >>> bool(path_pattern("api/v1/users.py", folders=True).search("api/v1/roles.py is frozen"))
    False
    """
    parts = [re.escape(normal(part)) for part in path.split("/") if part not in ("", ".", "..")][-PATH_PARTS:]
    ends = ["/".join(parts[start:]) for start in range(len(parts) - 1)]
    forms = [*ends, *(parts[-1:] if "." in path.rpartition("/")[2] else [])]
    sources = [rf"(?:{form})(?![a-z0-9_/-])" for form in forms]
    if folders:
        ranges = ((start, end) for end in range(1, len(parts)) for start in range(end))
        for start, end in ranges:
            many = end - start > 1
            sources.append(
                "/".join(parts[start:end]) + ("(?:/\\**)?(?![a-z0-9_-]|/[a-z0-9_])" if many else "/\\**(?![a-z0-9_*])")
            )
    if not sources:
        return None
    return re.compile(rf"(?<![a-z0-9_./-])(?:\.{{0,2}}/)?(?:{'|'.join(sources)})")


def _in_full(memory: Memory, names: Sequence[str]) -> bool:
    """Return whether a memory of any type holds one of these names as it is."""
    content = normal(memory.content) if names else ""
    return any(re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", content) for name in names)


def _whole_commands(commands: Sequence[ShellCommand]) -> list[str]:
    """Return commands of `WHOLE_WORDS` words or more as they are written, and their beginnings."""
    lines = [command.raw[:FILES_MAX] for command in commands]
    return [normal(" ".join(line[:end])) for line in lines for end in range(len(line), WHOLE_WORDS - 1, -1)]


def _whole_paths(paths: Sequence[str]) -> list[str]:
    """Return how a memory names these very files: by two of their last parts or more."""
    split = [[part for part in path.split("/") if part] for path in paths]
    return [
        normal("/".join(parts[start:]))
        for parts in split
        for start in range(max(0, len(parts) - FILES_MAX), len(parts) - 1)
    ]


def _warnings(anchor: MemoryAnchor, memories: Iterable[Memory], known: frozenset[str]) -> Brief:
    to_line = partial(RecalledLine.of_memory, anchor)
    lines = {memory.id: memory for memory in memories if memory.id not in known}
    chosen, _ = lines_within(map(to_line, list(lines.values())[:WARNINGS]), PROMPT_TOKENS)
    return Brief("\n".join([PROMPT_HEAD, *fenced(chosen, "project memory")]), tuple(chosen)) if chosen else Brief()
