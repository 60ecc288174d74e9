r"""Lines end at `\n` alone, and one bad byte, line or message costs itself: every reader of text from outside."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.base.json_values import lenient
from memory_anchor.base.lines import text_lines
from memory_anchor.extensions.transfer.other_tools import blocks
from memory_anchor.front.clients import hooks
from memory_anchor.ingest.messages import Message, prose_of
from memory_anchor.ingest.transcripts import parse_transcript

PACKAGE = Path(__file__).resolve().parents[2] / "memory_anchor"
PLACES = sorted(PACKAGE.rglob("*.py"))
BREAKS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What `str.splitlines` ends a line at, besides `\r` and `\n`."""
PARSERS = {"loads", "parsed", "safe_load"}
"""Take a whole text of one of our own files in a syntax in which `\r` and `\n` are alike."""
RESOURCES = {"files", "__file__"}
"""Mark a file that is part of the package."""


def faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of each call that ends lines elsewhere."""
    fine: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in PARSERS:
            fine.update(inner for argument in node.args for inner in ast.walk(argument))
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        words = {getattr(inner, "id", "") for inner in ast.walk(node)}
        if name == "splitlines":
            yield node.lineno, "splitlines"
        if name == "read_text" and isinstance(node.func, ast.Attribute) and node not in fine and not words & RESOURCES:
            yield node.lineno, "read_text"
        mode = named.get("mode") or next((one for one in node.args if isinstance(one, ast.Constant)), None)
        how = mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else "r"
        is_text = name == "open" and "encoding" in named and "b" not in how
        if is_text and "newline" not in named and not {"w", "a", "x"} & set(how):
            yield node.lineno, "open"
        if {"text", "universal_newlines"} & named.keys() and name in ("run", "Popen", "check_output"):
            yield node.lineno, name


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_in_the_tree_ends_a_line_elsewhere(path: Path) -> None:
    r"""Rule lines: `\n` alone; `splitlines` and text files with universal newlines end lines within a text."""
    assert list(faults(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_the_walk_finds_what_it_is_for() -> None:
    source = "t.splitlines()\np.read_text()\np.open(encoding='u')\nopen(p, encoding='u')\nrun([], text=True)"
    assert [what for _, what in faults(ast.parse(source))] == ["splitlines", "read_text", "open", "open", "run"]
    fine = "json.loads(p.read_text())\np.open('w', encoding='u')\np.open(encoding='u', newline='')\np.open('rb')"
    assert list(faults(ast.parse(fine))) == []


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)))
def test_lines_come_back_as_they_were_joined(lines: list[str]) -> None:
    assert text_lines("\n".join(lines)) == lines
    assert text_lines("\r\n".join(lines)) == lines
    assert "".join(text_lines("\n".join(lines), ends=True)) == "\n".join(lines)


def turn(role: str, content: object) -> str:
    return json.dumps({"type": role, "message": {"role": role, "content": content}}, ensure_ascii=False)


SAID = "We decided: always run migrations with alembic,{}never by hand."


@pytest.mark.parametrize("character", BREAKS, ids=lambda character: f"U+{ord(character):04X}")
def test_a_transcript_keeps_a_message_with_any_line_separator(character: str) -> None:
    said = SAID.format(character)
    raw = "\n".join([turn("user", said), turn("assistant", "ok"), turn("user", "Use tabs.")])

    messages, _ = parse_transcript(raw.encode())

    assert [message.content for message in messages] == [said, "ok", "Use tabs."]
    assert "\n" not in prose_of(Message("user", said))


BROKEN: dict[str, bytes] = {
    "a bad byte": b'{"type": "user", "message": {"role": "user", "content": "caf\xe9"}}',
    "half-written lines": b"\n".join([b'{"type": "user", "mess'] * 9),
    "a block of NUL": b"\0" * 4096,
    "half a character": rb'{"type": "user", "message": {"role": "user", "content": "x \udc88 y"}}',
    "a tool's answer": turn("user", [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]).encode(),
    "another shape": b'{"type": "user", "message": 7}\n[]\n5\nnull\n"x"',
    "a line nested too deep": b'{"a":' * 100_000,
    "a line too long": b'{"type": "user", "x": "' + b"x" * (4 << 20) + b'"}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_in_a_transcript_costs_itself(name: str) -> None:
    """Rule input: a bad byte, line or first message costs itself and not the session."""
    said = ["From now on run alembic.", "We decided to use PostgreSQL 16."]
    for place in range(3):
        lines = [turn("user", text).encode() for text in said]
        lines.insert(place, BROKEN[name])
        messages, _ = parse_transcript(b"\n".join(lines))

        assert [message.content for message in messages if message.content in said] == said
        assert all(message.content.encode() for message in messages if message.content)


def test_a_message_of_an_unknown_kind_costs_itself() -> None:
    talk = [{"role": "robot", "content": "x"}, {"role": "tool", "content": "42"}, {"role": "user", "content": "Hello."}]

    messages, form = parse_transcript(json.dumps(talk).encode())

    assert form == "json"
    assert [(message.role, message.content) for message in messages] == [("tool", "42"), ("user", "Hello.")]


@pytest.mark.parametrize("character", BREAKS, ids=lambda character: f"U+{ord(character):04X}")
def test_the_items_of_a_note_stay_where_they_are(character: str) -> None:
    note = (
        f"# Rules\n\nIntro one{character}still the intro.\n\n## Build\n\n- The tool is bazel\n- The host is cache-3\n"
    )

    assert [(line, text) for line, _, text in blocks(note)][1:] == [
        (7, "The tool is bazel"),
        (8, "The host is cache-3"),
    ]


def test_a_hooks_payload_is_read_in_spite_of_a_bad_byte_and_half_a_character() -> None:
    raw = b'{"session_id": "s", "prompt": "caf\xe9 \\ud83d and \\ud83d\\ude00"}'

    payload = hooks._payload(raw)

    assert payload == {"session_id": "s", "prompt": "caf\ufffd \ufffd and \U0001f600"}
    assert lenient(json.dumps({"a": ["\udc88"]})) == {"a": ["\ufffd"]}
