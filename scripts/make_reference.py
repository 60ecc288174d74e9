"""Write docs/reference/: every command, setting, tool and path, generated from parser, settings, tool table and server.

A test compares these pages with what this script would write; nothing in them is typed by hand.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FOLDER = ROOT / "docs" / "reference"
SENTENCES = ROOT / "scripts" / "data" / "settings.toml"
"""What each setting does, in a sentence."""
ARGUMENTS = ROOT / "scripts" / "data" / "arguments.toml"
"""What an argument is, where its own place says nothing."""
EXAMPLES = ROOT / "scripts" / "data" / "http_examples.toml"
"""Requests of the HTTP page with the part of each answer that it shows; a test sends them."""
MADE = "<!-- Written by scripts/make_reference.py; a test compares it. -->\n"
CELL = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", ">": "&gt;"})


def cell(text: object) -> str:
    return " ".join(str(text).translate(CELL).split())


def code(text: object) -> str:
    return f"`{str(text).replace('|', chr(92) + '|')}`"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return a table's lines, none where there is no row."""
    lines = [head, ("---",) * len(head), *rows] if rows else []
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


USED: set[tuple[str, str]] = set()
"""The sentences of `ARGUMENTS` that a page has taken, by place ("" for every place) and name."""


def described(said: str, place: str, name: str) -> str:
    """Return what an argument is: its own words, else those of `ARGUMENTS`. Raises KeyError: neither has any."""
    if said.strip():
        return cell(said)
    told = tomllib.loads(ARGUMENTS.read_text("utf-8"))
    name = name.lower().strip("-[]").replace("-", "_")
    where = place if name in told.get(place, {}) else ""
    USED.add((where, name))
    return cell((told[where] if where else told)[name])


# --- commands ------------------------------------------------------------------------------------------------------


def commands() -> str:
    from typer.main import get_command

    from memory_anchor.front.cli.app import app

    lines = [
        "# Commands",
        "",
        MADE,
        "Every command takes `--help`. Those that show something answer in JSON with `--json`, a failure too",
        "(`error`, `message`). Ids may be cut short, times said in words, layers named `L0` to `L4`.",
        "`memory-anchor --install-completion` sets up your shell.",
        "",
    ]
    for words, command in _commands(get_command(app), ()):
        lines += [f"## {' '.join(words)}", "", *_described(command.help or ""), "", *_examples(command.epilog or "")]
        takes = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
        place = " ".join(words)
        rows = [
            (_named(one), cell(_default(one)), described(getattr(one, "help", "") or "", place, one.name))
            for one in takes
        ]
        lines += table(("argument", "default", "what it is"), rows)
    return "\n".join(lines)


MORE = (
    "log",
    "history",
    "profile",
    "pin",
    "context",
    "knowledge",
    "sessions",
    "handoff",
    "projects",
    "export",
    "stats",
)
MORE += ("jobs", "engine", "uninstall", "reindex", "migrate", "extract", "eval", "hook", "statusline", "lorebook")
"""Commands that the first list of the help leaves out, and that are no older spellings."""


def _commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in sorted(group.commands.items()):
        if not words and command.hidden and name not in MORE:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _described(text: str) -> list[str]:
    return [re.sub(r"<([^<>]*)>", r"&lt;\1&gt;", inspect.cleandoc(text))]


def _examples(text: str) -> list[str]:
    """Return the examples below a command's help as one block."""
    shown = [line.strip() for line in text.partition("Examples:")[2].splitlines() if line.strip()]
    return ["```console", *(f"$ {one}" for one in shown), "```", ""] if shown else []


def _named(one: Any) -> str:
    if one.param_type_name == "argument":
        return code((one.metavar or one.name).upper())
    names = sorted((*one.opts, *one.secondary_opts), key=len, reverse=True)
    return " ".join(code(name) for name in names)


def _default(one: Any) -> str:
    if one.required:
        return "needed"
    value = one.default() if callable(one.default) else one.default
    if value is False:
        return "off"
    return "none" if value in (None, "", (), []) else f"`{value}`"


# --- settings ------------------------------------------------------------------------------------------------------


def settings() -> str:
    from memory_anchor.settings import Settings

    schema = Settings.model_json_schema()
    told = tomllib.loads(SENTENCES.read_text("utf-8"))
    said, about = told["setting"], told["about"]
    lines = [
        "# Settings",
        "",
        MADE,
        "Defaults < your file < `memory-anchor.yaml` of the project < environment < arguments. In the environment",
        "`budget.facts` is `MEMORY_ANCHOR_BUDGET__FACTS`. `memory-anchor config` prints each value and its origin.",
        "",
    ]
    groups: dict[str, list[tuple[str, ...]]] = {"": []}
    for name, one in schema["properties"].items():
        inner = _resolved(one, schema)
        for path, leaf in [(name, inner)] if "properties" not in inner else _leaves(name, inner, schema):
            group = path.partition(".")[0] if "." in path else ""
            row = (code(path), cell(_value(leaf)), cell(_allowed(leaf, schema)), cell(said.get(path, "")))
            groups.setdefault(group, []).append(row)
    for group, rows in groups.items():
        lines += [f"## {group or 'Of all'}", "", *([about[group], ""] if group else [])]
        lines += table(("setting", "default", "allowed", "what it does"), rows)
    return "\n".join(lines)


def _resolved(one: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    refs = [one, *one.get("allOf", ())]
    found = next((part["$ref"] for part in refs if "$ref" in part), "")
    return {**schema["$defs"][found.rpartition("/")[2]], **one} if found else one


def _leaves(name: str, group: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    defaults = group.get("default", {})
    for key, one in group["properties"].items():
        inner, path = _resolved(one, schema), f"{name}.{key}"
        if isinstance(defaults, dict) and key in defaults:
            inner = {**inner, "default": defaults[key]}
        if "properties" in inner:
            yield from _leaves(path, inner, schema)
        else:
            yield path, inner


def _value(leaf: dict[str, Any]) -> str:
    value = leaf.get("default")
    return "none" if value in (None, "", [], {}) else f"`{json.dumps(value, ensure_ascii=False)}`"


def _allowed(leaf: dict[str, Any], schema: dict[str, Any]) -> str:
    if "enum" in leaf:
        return ", ".join(f"`{one}`" for one in leaf["enum"])
    if "anyOf" in leaf:
        return " or ".join(_allowed(_resolved(one, schema), schema) for one in leaf["anyOf"])
    kind = leaf.get("type", "")
    low = leaf.get("minimum", leaf.get("exclusiveMinimum"))
    high = leaf.get("maximum", leaf.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f"{'above ' if 'exclusiveMinimum' in leaf else ''}{low} to {high}"
    if low is not None:
        return f"above {low}" if "exclusiveMinimum" in leaf else f"{low} or more"
    named = {"boolean": "on or off", "string": "text", "integer": "a whole number", "number": "a number"}
    return named.get(kind, {"array": "a list", "object": "a table", "null": "nothing"}.get(kind, "text"))


# --- tools and paths -----------------------------------------------------------------------------------------------


def tools() -> str:
    from memory_anchor.front import mcp_answers, tool_specs

    lines = [
        "# MCP tools",
        "",
        MADE,
        "What an agent is offered, by `profile`: `minimal`, `standard` or `full`. Older names are understood too.",
        "",
    ]
    shown = {
        profile: {one.name for one in tool_specs.listed_tools(profile, read_only=False, available=mcp_answers.CALLS)}
        for profile in ("minimal", "standard")
    }
    reading = {one.name for one in tool_specs.listed_tools("full", read_only=True, available=mcp_answers.CALLS)}
    for spec in tool_specs.listed_tools("full", read_only=False, available=mcp_answers.CALLS):
        first = next((name for name, names in shown.items() if spec.name in names), "full")
        does = "reads" if spec.name in reading else "writes"
        lines += [f"## {spec.name}", "", f"From profile `{first}` on; {does}. {spec.description}", ""]
        schema = tool_specs.schema_of(spec)
        needed = set(schema.get("required", ()))
        rows = [
            (
                code(name),
                "needed" if name in needed else cell(_value(one)),
                described(_told(one), spec.name, name),
            )
            for name, one in schema.get("properties", {}).items()
        ]
        lines += table(("argument", "default", "what it is"), rows)
    return "\n".join(lines)


def _told(one: dict[str, Any]) -> str:
    kinds = one.get("enum") or one.get("items", {}).get("enum")
    values = ", ".join(f"`{value}`" for value in kinds) if kinds else ""
    return " ".join(part for part in (one.get("description", ""), values) if part)


def http() -> str:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
    lines = [
        "# HTTP: /v1",
        "",
        MADE,
        "What `memory-anchor serve` answers beside `/mcp` and `/sse`. The same as a document for machines:",
        "[openapi.json](../openapi.json). In the examples `$URL` is the server's address, `$KEY` an access key",
        "(`memory-anchor keys create`), and `…` what differs from time to time.",
        "",
    ]
    examples = tomllib.loads(EXAMPLES.read_text("utf-8"))
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            lines += [f"## {method.upper()} {path}", "", cell(one.get("description") or one.get("summary", "")), ""]
            content = one.get("requestBody", {}).get("content", {})
            body = next(iter(content.values()), {}).get("schema", {})
            body = _body(body, document)
            needed = set(body.get("required", ()))
            rows = [
                (
                    code(name),
                    "yes" if name in needed else "no",
                    described(_told(field), f"{method.upper()} {path}", name),
                )
                for name, field in body.get("properties", {}).items()
            ]
            rows += [
                (code(field["name"]), "yes" if field.get("required") else "no", f"in the {field['in']}")
                for field in one.get("parameters", ())
            ]
            lines += table(("field", "needed", "what it is"), rows)
            answers = ", ".join(code(status) for status in one.get("responses", {}))
            lines += [f"Answers {answers}.", ""]
            for example in examples.get(f"{method.upper()} {path}", ()):
                lines += ["```sh", request(path, example), "```", "", "```json", example["answer"].strip(), "```", ""]
    return "\n".join(lines)


def request(path: str, example: dict[str, str]) -> str:
    """Return a request as it is typed: `$URL` is what `serve` prints or the server's address, `$KEY` an access key."""
    body = f" --json '{example['body'].strip()}'" if "body" in example else ""
    return f'curl -sS -H "Authorization: Bearer $KEY" "$URL{path}"{body}'


def _body(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("$ref", "")
    return document["components"]["schemas"][found.rpartition("/")[2]] if found else schema


# --- clients -----------------------------------------------------------------------------------------------------

CLIENTS = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "claude-desktop": "Claude Desktop",
    "windsurf": "Windsurf",
    "zed": "Zed",
    "opencode": "opencode",
}
"""The clients that `install` writes for, by the names people know them by."""
HOOKS = {
    "SessionStart": "its rules, what is due, what changed since it was last here",
    "UserPromptSubmit": "with the first prompt what decides it or concerns its files, later only what decides",
    "PreToolUse": "a known trap of the file or command, once, before it happens",
    "PostToolUse": "the known fix of a command that failed",
    "PostToolUseFailure": "the same, where the client tells of failures apart",
    "PreCompact": "what a summary has to keep",
    "PostCompact": "nothing: the summary is stored",
    "Stop": "nothing: it is looked at whether the next prompt asks, once, to save what lasts",
    "SessionEnd": "nothing: what the session still holds waits for review",
}
"""What an agent is told at each hook."""


def client(name: str) -> str:
    """Return the page of one client: what `install` writes, where, and what its agent is told by itself."""
    from memory_anchor.front.clients.places import SCOPES, parts_of

    home, project = Path("~"), Path("PROJECT")
    rows, shown, hooks = [], "", list[str]()
    for scope in SCOPES:
        for part in parts_of(name, scope=scope, command=("memory-anchor",), home=home, project=project, env={}):
            if part.kind == "json-hooks":
                hooks = list(part.value)
                rows.append((scope, code(part.file), f"{len(hooks)} hooks"))
                continue
            rows.append((scope, code(part.file), f"the server, as {code('.'.join(part.under))}"))
            shown = shown or json.dumps(dict(part.value), indent=2)
    lines = [f"# {CLIENTS[name]}", "", MADE]
    lines += ["```bash", f"memory-anchor install {name}", f"memory-anchor uninstall {name}", "```", ""]
    lines += [
        "The change is shown before it is made, an entry that is there is taken over, comments stay, and `uninstall`",
        "gives the files back to the byte. `--scope project` writes beside the project instead of for the user.",
        "",
        *table(("scope", "file", "what is written"), rows),
        "The entry of the server:",
        "",
        "```json",
        shown,
        "```",
        "",
    ]
    if "/bin/sh" in shown:
        lines += [
            "It starts `memory-anchor mcp`. The script answers in its place where that is gone or was killed: Claude",
            "Code shows each hook whose server is not connected as failed, at every command. In a project and on",
            "Windows the entry is the command alone.",
            "",
        ]
    if hooks:
        lines += ["What its agent is told by itself, and when:", ""]
        lines += table(("hook", "what it brings"), [(code(one), HOOKS[one]) for one in hooks])
    else:
        lines += [
            "It has no hooks: its agent reads and writes memory by the tools alone, and gets the rules of L0 with the",
            "server's instructions.",
            "",
        ]
    return "\n".join(lines)


PAGES = {"commands.md": commands, "settings.md": settings, "tools.md": tools, "http.md": http} | {
    f"client-{name}.md": partial(client, name) for name in CLIENTS
}


def pages() -> dict[str, str]:
    """Return file name -> text of each page."""
    return {name: re.sub(r"\n{3,}", "\n\n", made()).strip() + "\n" for name, made in PAGES.items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/reference/{name}: {len(text.splitlines())} lines")
