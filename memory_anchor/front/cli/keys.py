"""Commands about access keys of a served memory: keys create, list, revoke.

They work on the key file of this data directory, which a running server looks at with every request (where there are
several replicas, on what they share); no engine is asked. Making one needs the human's passphrase, since the record is
signed; ending one does not: it only takes away.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import asked_of, data_dir, key_of
from memory_anchor.front.cli.output import (
    JsonOption,
    KeyFileOption,
    ServerOption,
    guarded,
    out,
    quiet,
    show_json,
    shown,
)
from memory_anchor.front.cli.passphrase import ask_human, shared_here
from memory_anchor.json_values import records, text
from memory_anchor.requests import AddAccessKey

if TYPE_CHECKING:
    from memory_anchor.team.keys import AccessKey, KeyFile

HELP = "Who may come in to `memory-anchor serve`: create, list and revoke access keys."
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def register(app: typer.Typer) -> None:
    keys = group(app, "keys", HELP)
    keys.command("create")(create)
    keys.command("list")(list_)
    keys.command("revoke")(revoke)


@guarded
def create(
    account: Annotated[str, typer.Option(help="Whose memory it opens; left out: this installation's own.")] = "",
    user: Annotated[str, typer.Option(help="Who holds it; left out: requests may name one (for services).")] = "",
    role: Annotated[
        str,
        typer.Option(
            help="reader, writer, approver or admin.",
            autocompletion=completing.words("reader", "writer", "approver", "admin"),
        ),
    ] = "writer",
    project: Annotated[
        str, typer.Option(help="Only this project, by its id; left out: every one.", autocompletion=completing.projects)
    ] = "",
    expires: Annotated[str, typer.Option(metavar="WHEN", help="90d, 12h, 4w, or an ISO 8601 time with a zone.")] = "",
    note: Annotated[str, typer.Option(help="What it is for; shown by `keys list`.")] = "",
    signs_with: Annotated[
        str, typer.Option(metavar="KEY", help="Of an approver: what `constitution approvers` prints on their machine.")
    ] = "",
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """Make a key and show it, once; needs the passphrase.

    With --server an admin makes one for a served memory: here, so that only its hash goes there.
    """
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.adapters.system import SystemClock, new_bytes
    from memory_anchor.app import settings_of
    from memory_anchor.inputs import project_id
    from memory_anchor.team.credential import Role
    from memory_anchor.team.keys import new_key, told_of

    now = SystemClock().now()
    if role not in {one.value for one in Role}:
        raise BadInput(f"role is {role[:40]!r}; allowed are {', '.join(Role)}")
    if project:
        project_id(project)
    until = _until(expires, now)
    wanted = partial(
        new_key,
        role=Role(role),
        user=user,
        project=project,
        note=note,
        public=signs_with,
        expires_at=until,
        new_bytes=new_bytes,
        now=now,
    )
    if server:
        if account:
            raise BadInput("--account is given with --server; an admin's keys are of their own account: leave it out")
        key, made = _made_elsewhere(server.rstrip("/"), key_of(key_file), wanted)
    else:
        keys, of = keys_here(), account or settings_of(os.environ).scope.account
        key, made = wanted(ask_human(), account=of)
        keys.add(made, now)
        audit = JsonlAudit(data_dir() / "audit" / "audit.jsonl")
        audit.append("key.created", told_of(made), by=f"human:{made.created_by}", at=now)
    if json_:
        show_json({"key": key, **told_of(made)})
        return
    sys.stdout.write(f"{key}\n")
    quiet("shown this once; give it to its holder over a safe channel (`Authorization: Bearer ...`)")
    quiet(f"id {made.id} of {made.account}, {made.role.value}; it ends with `memory-anchor keys revoke {made.id}`")


@guarded
def list_(server: ServerOption = "", key_file: KeyFileOption = "", json_: JsonOption = False) -> None:
    """Show every key: whose it is, what it may, when it was last used; never what opens."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.team.keys import told_of

    if server:
        rows = records(asked_of(server.rstrip("/"), key_of(key_file), "keys")["keys"])
    else:
        keys, now = keys_here(), SystemClock().now()
        used = keys.last_used()
        every = keys.all().values()
        rows = [{**told_of(one), "last_used_at": used.get(one.id, ""), "ended": one.ended(now)} for one in every]
    if json_:
        show_json({"keys": rows})
        return
    for row in rows:
        colour, state = (
            ("dim", text(row["ended"]).rpartition(f"{row['id']} ")[2]) if row["ended"] else ("green", "open")
        )
        whose = "/".join(str(row[name]) for name in ("account", "user", "project") if row[name])
        out.print(f"[cyan]{row['id']}[/] {shown(row['role'])} {shown(whose)} [{colour}]{shown(state)}[/]")
        note = f"; {row['note']}" if row["note"] else ""
        quiet(f"  made {row['created_at']} by {row['created_by']}, last used {row['last_used_at'] or 'never'}{note}")
    if not rows:
        quiet("there is no key yet: `memory-anchor keys create`")


@guarded
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `keys list` shows it.")],
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """End a key for good; a running server refuses it from the next request on."""
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.team.keys import told_of

    if server:
        told = asked_of(server.rstrip("/"), key_of(key_file), "keys/revoke", {"id": key})
    else:
        now = SystemClock().now()
        told = told_of(keys_here().revoke(key, now))
        audit = JsonlAudit(data_dir() / "audit" / "audit.jsonl")
        audit.append("key.revoked", {"id": told["id"]}, by="command", at=now)
    if json_:
        show_json(told)
        return
    quiet(f"{told['id']} of {told['account']} opens nothing any more")


def _made_elsewhere(url: str, own: str, wanted: Callable[..., tuple[str, AccessKey]]) -> tuple[str, AccessKey]:
    """Return a key that is signed here and kept by a served memory. Raises what that says of it."""
    from memory_anchor.team.keys import name_of

    told = asked_of(url, own, "keys")
    key, made = wanted(ask_human(), account=text(told["account"]), made_with=name_of(own))
    said = {name: getattr(made, name) for name in AddAccessKey.model_fields}
    asked_of(url, own, "keys/create", {**said, "role": made.role.value})
    return key, made


def keys_here() -> KeyFile:
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.team.keys import KeyFile

    os.umask(0o077)
    return KeyFile.of(data_dir(), JsonlAudit(data_dir() / "audit" / "audit.jsonl"), shared_here())


def _until(said: str, now: datetime) -> datetime | None:
    """Return when a key ends, None for never. Raises BadInput."""
    if not said:
        return None
    if span := _SPAN.fullmatch(said):
        return now + timedelta(hours=int(span[1]) * _HOURS[span[2]])
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadInput(f"expires is {said[:40]!r}; allowed are 12h, 90d, 4w, or a time such as 2027-01-31T00:00:00Z")
    return at
