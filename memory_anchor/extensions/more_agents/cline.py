"""Cline: `~/.cline/data/sessions/*/*.messages.json`.

A session's own file beside its messages says where it was; a sub agent has a file of messages in its parent's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from memory_anchor.base.json_values import Json, Record, inside, objects, string
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.extensions.more_agents.stores import document, spoken, tool, value
from memory_anchor.extensions.sessions.agents import FoundSession, files
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep, resulted, seconds, text_of
from memory_anchor.ingest.transcripts import is_inserted

AGENT = "cline"


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    own = Path(env.get("CLINE_DATA_DIR") or Path(env.get("CLINE_DIR") or home / ".cline") / "data")
    return [Path(env.get("CLINE_SESSION_DATA_DIR") or own / "sessions")]


def found(root: Path) -> Sequence[FoundSession]:
    return files(AGENT, root, "*.messages.json", 2)


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    content, folder = document(found.path), found.path.parent
    about: Json = None
    with suppress(BadInput, NotFound):
        about = document(folder / f"{folder.name}.json")
    facts.name, facts.parent = string(content, "sessionId"), string(content, "origin", "parentThreadId")
    facts.cwd, facts.branch = string(about, "cwd"), string(about, "metadata", "git", "branch")
    facts.title = "" if facts.parent else string(about, "metadata", "title")
    return _messages(objects(inside(content, "messages")))


def _messages(messages: Sequence[Record]) -> Iterator[TranscriptStep]:
    for message in messages:
        at, content, role = seconds(message.get("ts")), message.get("content"), message.get("role")
        text = text_of(content).strip()
        if text.startswith("<user_input"):
            text = text.partition(">")[2].rpartition("</user_input>")[0]
        if role == "assistant" or not is_inserted(text):
            yield from spoken(role, text, at)
        for block in objects(content):
            if block.get("type") == "tool_use":
                given = inside(block, "input")
                commands = inside(given, "commands")
                several = [{"command": one} for one in commands] if isinstance(commands, list) else [given]
                for number, arguments in enumerate(several):
                    yield tool(string(block, "name"), arguments, at=at, call=f"{string(block, 'id')}/{number}")
            elif block.get("type") == "tool_result":
                yield from _results(block, at)


def _results(block: Record, at: float) -> Iterator[TranscriptStep]:
    content = block.get("content")
    answer = value(content, Facts()) if isinstance(content, str) and content.startswith("{") else content
    answers = [answer] if isinstance(answer, Mapping) else objects(answer)
    for number, one in enumerate(answers or [{"text": text_of(content)}]):
        output, error = string(one, "result") or string(one, "text"), string(one, "error")
        failed = inside(one, "success") is False or bool(error) or block.get("is_error") is True
        code = error.rpartition("exited with code ")[2]
        exit = int(code) if code.isdecimal() and len(code) < 4 else int(failed)
        yield resulted(output or error, at=at, call=f"{string(block, 'tool_use_id')}/{number}", exit=exit)
