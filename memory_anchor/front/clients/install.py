"""Add us to a client's configuration, and remove us again exactly.

Each changed file is backed up, and a record notes how we left it. Uninstalling restores the backup byte for byte when
nobody changed the file since, else it removes only our part and puts back what it replaced. JSON is edited in place, so
comments stay (`places`); a file that is not the JSON or TOML we expect is never touched: the message says what to add
by hand. Installing twice changes nothing the second time. A server entry that somebody wrote by hand and that already
starts us is adopted: it stays as it is, and no second one is added. What `uvx` runs lies in a cache that is emptied
some day: it is installed as a tool first, and that one is what a client starts.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memory_anchor.base import installation
from memory_anchor.base.files import replace_durably
from memory_anchor.base.json_values import Json, Record, items, record
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.front.clients import places
from memory_anchor.front.clients.places import Part
from memory_anchor.runtime import wire

RECORDS = "installed"
MAX_CONFIG_BYTES = 32 << 20
UV_WAIT_S = 600.0
CURE = "run it, then try again"
NEXT_STEP = {
    "claude-code": "start a new session; approve the server and hooks if Claude Code asks",
    "codex": "start a new session; Codex asks once whether it may run the hooks",
    "json": "put this into your client's MCP configuration",
}


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One file: its text before (None: it did not exist) and after (None: it goes)."""

    file: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return a unified diff, "" when nothing changes."""
        lines = difflib.unified_diff(
            text_lines(self.before or "", ends=True),
            text_lines(self.after or "", ends=True),
            str(self.file) if self.before is not None else "/dev/null",
            str(self.file) if self.after is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was done to a client's configuration, or would be. backups: file -> its copy as it was before."""

    client: str
    scope: str
    action: str
    changes: tuple[ConfigChange, ...]
    backups: Mapping[str, str]
    dry_run: bool
    snippet: str = ""
    adopted: tuple[str, ...] = ()
    """Existing servers that start us: file and name."""
    tool: str = ""
    """The command as which we were installed for good, "" where we were before."""
    note: str = ""
    """One sentence on what was left out of the environment, "" for nothing."""

    def text(self) -> str:
        """Return the plan for a person: every diff, and the next step."""
        changed = [change.diff() for change in self.changes if change.before != change.after]
        tool = [self.note] if self.note else []
        tool += [f"installed as {self.tool}"] if self.tool else []
        if self.snippet:
            return "\n".join([*tool, f"{NEXT_STEP['json']}:", self.snippet])
        adopted = [f"{server} starts us already and stays as it is" for server in self.adopted]
        if not changed:
            return "\n".join([*tool, *adopted, f"{self.client} ({self.scope}): nothing to change"])
        did = f"would {self.action}" if self.dry_run else f"{self.action} done"
        backups = [f"backup of {file}: {copy}" for file, copy in self.backups.items()]
        step = [NEXT_STEP[self.client]] if self.client in NEXT_STEP and self.action == "install" else []
        return "\n".join([*changed, *adopted, *tool, f"{self.client} ({self.scope}): {did}", *backups, *step])

    def as_dict(self) -> Record:
        """Return the plan as JSON; `diff` is empty for a file that stays as it is."""
        return {
            "client": self.client,
            "scope": self.scope,
            "action": self.action,
            "dry_run": self.dry_run,
            "changes": [{"file": str(change.file), "diff": change.diff()} for change in self.changes],
            "backups": dict(self.backups),
            **({"snippet": self.snippet} if self.snippet else {}),
            **({"adopted": list(self.adopted)} if self.adopted else {}),
            **({"tool": self.tool} if self.tool else {}),
            **({"note": self.note} if self.note else {}),
        }


def install(client: str, *, scope: str = "user", dry_run: bool = False, env: Mapping[str, str] | None = None) -> Plan:
    """Write our server and hooks into a client's configuration; a second time changes nothing.

    Raises BadInput: an unknown client or scope, or a configuration file we cannot read as what it should be.
    Raises Refused: a file cannot be written, the client has us as a plugin already, or uv does not install us.
    """
    site = _Site(env)
    parts = site.parts(client, scope)
    if client == "claude-code" and (plugin := _plugin(parts)):
        raise Refused(
            f"Claude Code has the plugin {plugin}, which brings this server and its hooks; every hook would run twice. "
            f"Keep it, or `claude plugin uninstall {plugin}` and install again"
        )
    tool = "" if dry_run else install_tool(env)
    if client == "json":
        snippet = json.dumps({"mcpServers": {places.NAME: places.server_entry(site.command, site.env)}}, indent=2)
        return Plan(client, scope, "install", (), {}, dry_run, snippet, tool=tool, note=site.note_on_env)
    adopted = {part.file: name for part in parts if (name := site.adopted(client, scope, part))}
    if client == "claude-code" and adopted:  # a server of another name, or another program's
        parts = tuple(places.by_process(part, site.command, site.env) for part in parts)
    by_file = _by_file(tuple(part for part in parts if part.file not in adopted))
    changes = tuple(_change(file, own) for file, own in by_file.items())
    backups = {} if dry_run else site.carry_out(client, scope, changes, by_file)
    if not dry_run:
        for file, name in adopted.items():
            site.note(client, scope, file, {"adopted": name})
    servers = tuple(f"{file}: {name}" for file, name in adopted.items())
    return Plan(client, scope, "install", changes, backups, dry_run, adopted=servers, tool=tool, note=site.note_on_env)


def uninstall(client: str, *, scope: str = "user", dry_run: bool = False, env: Mapping[str, str] | None = None) -> Plan:
    """Restore the files as they were before us: byte for byte where unchanged since, else without our part.

    Raises as `install` does.
    """
    site = _Site(env)
    parts = tuple(part for part in site.parts(client, scope) if not site.kept(client, scope, part.file).get("adopted"))
    changes = tuple(site.restored(client, scope, file, own) for file, own in _by_file(parts).items())
    if not dry_run:
        for change in changes:
            _write(change)
        for part in site.parts(client, scope):
            site.forget(client, scope, part.file)
    return Plan(client, scope, "uninstall", changes, {}, dry_run)


def detect_clients(clients: Sequence[str], *, env: Mapping[str, str] | None = None) -> list[str]:
    """Return which of these clients are on this machine, by their program or files, and do not have us yet."""
    site = _Site(env)
    return [name for name in clients if _is_here(site, name) and not _has_us(site, name)]


def _is_here(site: _Site, client: str) -> bool:
    if client not in places.PROGRAMS:
        return False
    if shutil.which(places.PROGRAMS[client], path=site.env.get("PATH", "")):
        return True
    files = [part.file for part in site.parts(client, "user")]
    return any(file.exists() or (file.parent != site.home and file.parent.is_dir()) for file in files)


def _has_us(site: _Site, client: str) -> bool:
    """Return whether installing would change nothing; an unreadable file is reported when it is installed."""
    try:
        plan = install(client, dry_run=True, env=site.env)
    except Refused:  # as a plugin
        return True
    except BadInput:
        return False
    return all(change.before == change.after for change in plan.changes)


def _plugin(parts: Sequence[Part]) -> str:
    """Return the name under which a client's settings have us as a plugin, "" for none."""
    for part in parts:
        text = _read(part.file) if part.kind == "json-hooks" else None
        if text is not None and f'"{places.NAME}@' in text:
            enabled = _json_tree(part.file, text).get("enabledPlugins")
            names = enabled if isinstance(enabled, dict) else {}
            return next((name for name, on in names.items() if name.partition("@")[0] == places.NAME and on), "")
    return ""


class _Site:
    """The places of one run: home, project, our command, and the records of what was installed."""

    def __init__(self, env: Mapping[str, str] | None) -> None:
        given = dict(os.environ if env is None else env)
        self.note_on_env = places.note_on_env(given)
        self.env = {
            name: text for name, text in given.items() if not (name in wire.XDG and wire.is_of_a_snap(given, name))
        }
        self.home = Path(self.env.get("HOME") or Path.home())
        self.project = Path(wire.project_of(self.env, wire.working_folder()) or wire.working_folder())
        self.command = own_command(self.env)
        self.records = Path(wire.data_dir(self.env)) / RECORDS

    def parts(self, client: str, scope: str) -> tuple[Part, ...]:
        return places.parts_of(
            client, scope=scope, command=self.command, home=self.home, project=self.project, env=self.env
        )

    def carry_out(
        self, client: str, scope: str, changes: tuple[ConfigChange, ...], parts: Mapping[Path, tuple[Part, ...]]
    ) -> dict[str, str]:
        """Back up and write what changes; return file -> backup."""
        backups = {}
        for change in changes:
            if change.before == change.after:
                continue
            backup = self._backed_up(client, scope, change, parts[change.file])
            if backup is not None:
                backups[str(change.file)] = str(backup)
            _write(change)
        return backups

    def _backed_up(self, client: str, scope: str, change: ConfigChange, parts: tuple[Part, ...]) -> Path | None:
        """Back up the file as it is without us; return the copy, None when there was no file.

        A file that we did not write yet is copied as it is; one that somebody changed since is copied without our
        part, and with the server that our part replaced.
        """
        copy = self._record(client, scope, change.file).with_suffix(".before")
        noted = self.kept(client, scope, change.file)
        is_new = noted.get("after") != _digest(change.before)  # else nobody changed it since: its backup is good
        existed = change.before is not None if is_new else bool(noted.get("existed"))
        held = noted.get("held", {}) if noted else _replaced_servers(change.file, change.before, parts)
        if is_new and change.before is not None:
            without = _without(change.file, change.before, parts, record(held)) if noted else change.before
            self._private()
            wire.write_private(str(copy), without or "")
        self.note(client, scope, change.file, {"existed": existed, "after": _digest(change.after), "held": held})
        return copy if existed else None

    def note(self, client: str, scope: str, file: Path, facts: Record) -> None:
        self._private()
        wire.write_private(str(self._record(client, scope, file)), json.dumps({"file": str(file), **facts}))

    def kept(self, client: str, scope: str, file: Path) -> Record:
        """Return what installing noted about a file, {} when it noted nothing."""
        return wire.read_json(str(self._record(client, scope, file))) or {}

    def _private(self) -> None:
        wire.run_dir(str(self.records.parent))
        self.records.mkdir(mode=0o700, exist_ok=True)

    def adopted(self, client: str, scope: str, part: Part) -> str:
        """Return the name of a server that starts us and that we did not write, "" where there is none.

        One whose program is gone is replaced, like an older one of ours.
        """
        noted = self.kept(client, scope, part.file)
        if part.kind == "json-hooks" or (noted and not noted.get("adopted")):
            return ""
        path = self.env.get("PATH", "")
        for name, entry in _servers(part.file, _read(part.file), part).items():
            is_foreign = places.starts_us(entry) and entry != dict(part.value)
            if is_foreign and shutil.which(places.program(record(entry)), path=path):
                return name
        return ""

    def restored(self, client: str, scope: str, file: Path, parts: tuple[Part, ...]) -> ConfigChange:
        """Return the change that removes us from `file`."""
        noted, now = self.kept(client, scope, file), _read(file)
        if now is not None and noted.get("after") == _digest(now):
            copy = self._record(client, scope, file).with_suffix(".before")
            if not noted.get("existed"):
                return ConfigChange(file, now, None)
            if copy.is_file():
                return ConfigChange(file, now, _read(copy))
        return ConfigChange(file, now, _without(file, now, parts, record(noted.get("held") or {})))

    def forget(self, client: str, scope: str, file: Path) -> None:
        note = self._record(client, scope, file)
        note.unlink(missing_ok=True)
        note.with_suffix(".before").unlink(missing_ok=True)

    def _record(self, client: str, scope: str, file: Path) -> Path:
        return self.records / f"{client}-{scope}-{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}.json"


def runs_from_cache(env: Mapping[str, str]) -> bool:
    """Return whether `uvx` runs this installation, from its cache."""
    return bool(env.get("UV")) and any((folder / "CACHEDIR.TAG").is_file() for folder in Path(sys.prefix).parents)


def install_tool(env: Mapping[str, str] | None = None) -> str:
    """Install as a tool of uv what `uvx` runs, from where it came; return its command, "" where nothing is to install.

    A command of this version that another installer left there is used. Raises Refused: uv does not install it.
    """
    site = _Site(env)
    return _as_tool(tuple(site.env.items()), site.command[0]) if runs_from_cache(site.env) else ""


@cache
def _as_tool(env: tuple[tuple[str, str], ...], command: str) -> str:
    # Compiled now: the first session's hook would not wait for an engine that compiles everything first.
    python, origin = ".".join(map(str, sys.version_info[:2])), installation.source()
    words = ("tool", "install", "--quiet", "--compile-bytecode", "--python", python)
    force = shlex.join(("uv", *words, "--force", origin))
    other = f"uninstall what brought {command}, or run `{force}`; then try again"
    try:
        _uv(env, *words, origin, cure=other if Path(command).exists() else CURE)
    except Refused:
        if _prints(command, "--version") != f"{places.NAME} {wire.VERSION}":
            raise
    return command


def _prints(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, timeout=UV_WAIT_S).stdout.decode(errors="replace").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def _uv(env: tuple[tuple[str, str], ...], *words: str, cure: str = CURE) -> str:
    """Return what a command of uv prints. Raises Refused: it fails; cure: what may be done then."""
    try:
        uv = dict(env)["UV"]
        done = subprocess.run([uv, *words], env=dict(env), capture_output=True, check=True, timeout=UV_WAIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace")
        why = " ".join(said.split())[-300:]
        raise Refused(f"`{shlex.join(('uv', *words))}` failed ({why}); nothing was changed: {cure}") from error
    return os.fsdecode(done.stdout.strip())


def own_command(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that starts this installation: the script next to the interpreter, else on PATH.

    Where uvx runs it from its cache: the one that it gets as a tool. Raises Refused: uv does not say where.
    """
    name = f"{places.NAME}.exe" if sys.platform == "win32" else places.NAME
    if runs_from_cache(env):
        return (str(Path(_uv(tuple(env.items()), "tool", "dir", "--bin")) / name),)
    script = Path(sys.executable).parent / name
    if script.is_file():
        return (str(script),)
    # The command runs in every folder: no program or package of such a folder may be run instead.
    folders = [part for part in env.get("PATH", "").split(os.pathsep) if Path(part).is_absolute()]
    program = shutil.which(places.NAME, path=os.pathsep.join(folders))
    return (program,) if program else (sys.executable, "-P", "-m", "memory_anchor")


def _by_file(parts: tuple[Part, ...]) -> dict[Path, tuple[Part, ...]]:
    return {file: tuple(part for part in parts if part.file == file) for file in dict.fromkeys(p.file for p in parts)}


def _change(file: Path, parts: tuple[Part, ...]) -> ConfigChange:
    before = after = _read(file)
    for part in parts:
        after = _added(file, after, part)
    return ConfigChange(file, before, after)


def _added(file: Path, text: str | None, part: Part) -> str:
    if part.kind == "toml-server":
        return _toml_added(file, text or "", part)
    tree = _json_tree(file, text)
    if part.kind == "json-server":
        _check_objects(file, tree, part.under[:-1])
        return _json_put(file, text, tree, part.under, dict(part.value))
    _check_objects(file, tree, part.under)
    hooks = record(_at(tree, part.under))
    wanted = {event: [*_others(file, hooks, event), *items(part.value.get(event))] for event in {**hooks, **part.value}}
    if {event: groups for event, groups in wanted.items() if groups} == hooks:
        return text or ""
    text = _without_hooks(file, text, part) if text is not None else None
    for event, groups in part.value.items():
        for group in items(groups):
            tree = _json_tree(file, text)
            place = len(items(record(_at(tree, part.under)).get(event)))
            text = _json_put(file, text, tree, (*part.under, event, place), group)
    return text or ""


def _others(file: Path, hooks: Record, event: str) -> list[Json]:
    groups = hooks.get(event, [])
    if not isinstance(groups, list):
        raise BadInput(f"{file} holds hooks.{event} that is no list; mend it, then install again")
    return [group for group in groups if not places.is_our_hook(group)]


def _removed(file: Path, text: str | None, part: Part) -> str | None:
    if text is None:
        return None
    if part.kind == "toml-server":
        return _toml_removed(text, part)
    before = _at(_json_tree(file, text), part.under[:1])
    text = _edited(file, text, part.under) if part.kind == "json-server" else _without_hooks(file, text, part)
    is_left_empty = _at(_json_tree(file, text), part.under[:1]) == {} and before != {}
    return _edited(file, text, part.under[:1]) if is_left_empty else text


def _without_hooks(file: Path, text: str, part: Part) -> str:
    """Return the text without our matcher groups, and without the events that had nothing else."""
    hooks = _at(_json_tree(file, text), part.under)
    for event, groups in (hooks if isinstance(hooks, dict) else {}).items():
        ours = [n for n, group in enumerate(groups) if places.is_our_hook(group)] if isinstance(groups, list) else []
        if ours and len(ours) == len(groups):
            text = _edited(file, text, (*part.under, event))
            continue
        for place in reversed(ours):
            text = _edited(file, text, (*part.under, event, place))
    return text


def _without(file: Path, text: str | None, parts: tuple[Part, ...], held: Record) -> str | None:
    """Return a file's text without us, and again with the server that we replaced (`held`)."""
    for part in parts:
        text = _removed(file, text, part)
        name = part.under[-1]
        if name not in held or text is None:
            continue
        if part.kind == "json-server":
            text = _json_put(file, text, _json_tree(file, text), part.under, held[name])
        elif part.kind == "toml-server":
            text = _toml_added(file, text, Part(part.file, part.kind, part.under, record(held[name])))
    return text


def _replaced_servers(file: Path, text: str | None, parts: tuple[Part, ...]) -> Record:
    """Return the servers of our name that we did not write: name -> entry."""
    named = {part.under[-1]: _servers(file, text, part).get(part.under[-1]) for part in parts}
    return {name: entry for name, entry in named.items() if isinstance(entry, dict) and not places.starts_us(entry)}


def _servers(file: Path, text: str | None, part: Part) -> Record:
    """Return the servers of a client's file that are objects: name -> entry."""
    if text is None or part.kind == "json-hooks":
        return {}
    tree = _toml_tree(file, text) if part.kind == "toml-server" else _json_tree(file, text)
    servers = _at(tree, part.under[:-1])
    return (
        {name: entry for name, entry in servers.items() if isinstance(entry, dict)} if isinstance(servers, dict) else {}
    )


def _at(tree: Json, under: Sequence[str]) -> Json:
    for name in under:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _check_objects(file: Path, tree: Record, under: Sequence[str]) -> None:
    for depth in range(1, len(under) + 1):
        if (inner := _at(tree, under[:depth])) is not None and not isinstance(inner, dict):
            raise BadInput(f"{file} holds {under[depth - 1]!r} that is no object; mend it, then install again")


def _json_tree(file: Path, text: str | None) -> Record:
    if text is None or not text.strip("\ufeff \t\r\n"):
        return {}
    try:
        tree = places.read(text)
    except ValueError as error:
        raise BadInput(
            f"{file} is not JSON, comments and trailing commas allowed ({error}), so it is left alone; mend it, or add "
            "what `memory-anchor install json` shows"
        ) from None
    if not isinstance(tree, dict):
        raise BadInput(f"{file} holds no JSON object; mend it, then install again")
    return tree


def _json_put(file: Path, text: str | None, tree: Record, path: places.Steps, value: Json) -> str:
    """Return the text with a value in its place, and every other sign as it was."""
    if _at(tree, [str(step) for step in path]) == value:
        return text or ""
    if not tree and not (text or "").strip("\ufeff \t\r\n"):
        text = "{}\n"
    return _same_but(file, text or "", places.put(text or "", path, value), path)


def _edited(file: Path, text: str, path: places.Steps) -> str:
    """Return the text without what stands at a place."""
    return _same_but(file, text, places.drop(text, path), path)


def _same_but(file: Path, before: str, after: str, path: places.Steps) -> str:
    """Return `after` where it says the same as `before` but below the first name of `path`."""
    at = {str(path[0]): None}
    if {**_json_tree(file, before), **at} != {**_json_tree(file, after), **at}:
        raise BadInput(f"{file} is written in a form we cannot edit; add what `memory-anchor install json` shows")
    return after


def _toml_tree(file: Path, text: str) -> Record:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file} is not TOML ({error}), so it is left alone; mend it, then install again") from None


def _toml_added(file: Path, text: str, part: Part) -> str:
    if _at(_toml_tree(file, text), part.under) == dict(part.value):
        return text
    rest = _toml_removed(text, part)
    after = f"{rest}{'' if not rest or rest.endswith(chr(10)) else chr(10)}{chr(10) if rest else ''}{_toml_table(part)}"
    if not _is_merged(after, rest, part):
        raise BadInput(f"{file} names {'.'.join(part.under)} in a form we cannot edit; take it out, then install again")
    return after


def _is_merged(after: str, rest: str, part: Part) -> bool:
    """Return whether `after` means just what `rest` means and our table."""
    try:
        told, tree = tomllib.loads(after), tomllib.loads(rest)
    except tomllib.TOMLDecodeError:
        return False
    inner = tree
    for name in part.under[:-1]:
        inner = inner.setdefault(name, {})
    inner[part.under[-1]] = dict(part.value)
    return told == tree


def _toml_table(part: Part) -> str:
    # JSON strings, arrays and integers are TOML as they stand.
    lines = [f"{name} = {_toml_value(value)}" for name, value in part.value.items()]
    return "\n".join([f"[{'.'.join(part.under)}]", *lines]) + "\n"


def _toml_value(value: Json) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml_value(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _toml_removed(text: str, part: Part) -> str:
    """Return the text without our table and its sub-tables; every other line stays as it is."""
    name = r"\s*\.\s*".join(rf"[\"']?{re.escape(word)}[\"']?" for word in part.under)
    ours = re.compile(rf"^\s*\[\s*{name}\s*(?:\.[^\]]*)?\]")
    kept: list[str] = []
    inside = False
    for line in text_lines(text, ends=True):
        if re.match(r"\s*\[", line):
            inside = ours.match(line) is not None
            if inside and kept and not kept[-1].strip():
                kept.pop()  # the empty line we put before it
        if not inside:
            kept.append(line)
    return "".join(kept)


def _read(file: Path) -> str | None:
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise BadInput(
                f"{file} is {file.stat().st_size} bytes; configuration files up to {MAX_CONFIG_BYTES} are read"
            )
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text, so it is left alone") from None
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}); nothing was changed") from error


def _write(change: ConfigChange) -> None:
    """Put the new text in place in one step, through a symlink and with the file's own mode."""
    if change.before == change.after:
        return
    try:
        target = change.file.resolve() if change.file.is_symlink() else change.file
        if change.after is None:
            target.unlink(missing_ok=True)
            return
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        beside.write_bytes(change.after.encode())
        beside.chmod(mode)
        replace_durably(beside, target)
    except OSError as error:
        raise Refused(f"{change.file} cannot be written ({error.strerror}); it is as it was") from error


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()
