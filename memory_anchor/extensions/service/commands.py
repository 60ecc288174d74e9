"""Commands for a served memory: `serve`, and its access keys (`keys create`, `list`, `revoke`).

Those of the keys work on the key file of this data directory, which a running server reads with every request;
no engine is asked. Creating a key needs the human's passphrase, since the record is signed;
revoking one does not: it only takes rights away.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.base.json_values import text
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import data_dir, preamble
from memory_anchor.front.cli.output import (
    JsonOption,
    err,
    escaped,
    handle_errors,
    out,
    print_dim,
    show_json,
)
from memory_anchor.front.cli.passphrase import ask_human, audit_trail

if TYPE_CHECKING:
    from memory_anchor.extensions.service.keys import KeyFile

HELP = "Who may come in to `memory-anchor serve`: create, list and revoke access keys."
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def register(app: typer.Typer) -> None:
    app.command()(serve)
    keys = group(app, "keys", HELP)
    keys.command("create")(create)
    keys.command("list")(list_)
    keys.command("revoke")(revoke)


@handle_errors
def create(
    account: Annotated[str, typer.Option(help="Whose memory it opens; left out: this installation's own.")] = "",
    user: Annotated[str, typer.Option(help="Who holds it; left out: requests may name one (for services).")] = "",
    role: Annotated[str, completing.choice("reader", "writer", "approver", "admin")] = "writer",
    project: Annotated[
        str, typer.Option(help="Only this project, by its id; left out: every one.", autocompletion=completing.projects)
    ] = "",
    expires: Annotated[str, typer.Option(metavar="WHEN", help="90d, 12h, 4w, or an ISO 8601 time with a zone.")] = "",
    note: Annotated[str, typer.Option(help="What it is for; shown by `keys list`.")] = "",
    signs_with: Annotated[
        str, typer.Option(metavar="KEY", help="Of an approver: what `constitution approvers` prints on their machine.")
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Make a key and show it, once; needs the passphrase."""
    from memory_anchor.adapters.system import SystemClock, new_bytes
    from memory_anchor.domain.credential import Role
    from memory_anchor.domain.requests.checks import project_id
    from memory_anchor.extensions.service.keys import describe_key, new_key
    from memory_anchor.process.app import settings_of

    now = SystemClock().now()
    if role not in {known.value for known in Role}:
        raise BadInput(f"role is {role[:40]!r}; allowed are {', '.join(Role)}")
    if project:
        project_id(project)
    until = _until(expires, now)
    keys = keys_here()
    of = account or settings_of(os.environ).scope.account
    about = {"account": of, "user": user, "project": project, "role": role, "note": note, "signs with": signs_with}
    ends = until.isoformat(timespec="seconds") if until is not None else "never"
    shown = ", ".join(f"{name} {value}" for name, value in {**about, "ends": ends}.items() if value)
    err.print(f"[dim]a key: {escaped(shown)}[/]")
    key, made = new_key(
        ask_human(),
        account=of,
        role=Role(role),
        user=user,
        project=project,
        note=note,
        public=signs_with,
        expires_at=until,
        new_bytes=new_bytes,
        now=now,
    )
    keys.add(made, now)
    audit_trail(data_dir()).append("key.created", describe_key(made), by=f"human:{made.created_by}", at=now)
    if json_:
        show_json({"key": key, **describe_key(made)})
        return
    sys.stdout.write(f"{key}\n")
    print_dim("shown this once; give it to its holder over a safe channel (`Authorization: Bearer ...`)")
    print_dim(f"id {made.id} of {made.account}, {made.role.value}; it ends with `memory-anchor keys revoke {made.id}`")


@handle_errors
def list_(json_: JsonOption = False) -> None:
    """Show every key: whose it is, what it may, when it was last used; never what opens."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.extensions.service.keys import describe_key

    keys, now = keys_here(), SystemClock().now()
    used = keys.last_used()
    every = keys.all().values()
    rows = [{**describe_key(key), "last_used_at": used.get(key.id, ""), "ended": key.ended(now)} for key in every]
    if json_:
        show_json({"keys": rows})
        return
    for row in rows:
        colour, state = (
            ("dim", text(row["ended"]).rpartition(f"{row['id']} ")[2]) if row["ended"] else ("green", "open")
        )
        whose = "/".join(str(row[name]) for name in ("account", "user", "project") if row[name])
        out.print(f"[cyan]{row['id']}[/] {escaped(row['role'])} {escaped(whose)} [{colour}]{escaped(state)}[/]")
        note = f"; {row['note']}" if row["note"] else ""
        print_dim(
            f"  made {row['created_at']} by {row['created_by']}, last used {row['last_used_at'] or 'never'}{note}"
        )
    if not rows:
        print_dim("there is no key yet: `memory-anchor keys create`")


def key_ids(incomplete: str) -> list[tuple[str, str]]:
    """Ids of access keys, from the key file."""
    return completing.completed(
        incomplete, lambda: ((key.id, f"{key.account} {key.role.value}") for key in keys_here().all().values())
    )


@handle_errors
def revoke(
    key: Annotated[
        str, typer.Argument(metavar="ID", help="The key's id, as `keys list` shows it.", autocompletion=key_ids)
    ],
    json_: JsonOption = False,
) -> None:
    """End a key for good; a running server refuses it from the next request on."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.extensions.service.keys import describe_key

    now = SystemClock().now()
    revoked = describe_key(keys_here().revoke(key, now))
    audit_trail(data_dir()).append("key.revoked", {"id": revoked["id"]}, by="command", at=now)
    if json_:
        show_json(revoked)
        return
    print_dim(f"{revoked['id']} of {revoked['account']} opens nothing any more")


def keys_here() -> KeyFile:
    from memory_anchor.extensions.service.keys import KeyFile

    os.umask(0o077)
    return KeyFile.of(data_dir(), audit_trail(data_dir()))


def _until(expires: str, now: datetime) -> datetime | None:
    """Return when a key ends, None for never. Raises BadInput."""
    if not expires:
        return None
    if span := _SPAN.fullmatch(expires):
        return now + timedelta(hours=int(span[1]) * _HOURS[span[2]])
    try:
        at = datetime.fromisoformat(expires)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadInput(f"expires is {expires[:40]!r}; allowed are 12h, 90d, 4w, or a time such as 2027-01-31T00:00:00Z")
    return at


@handle_errors
def serve(
    host: Annotated[str | None, typer.Option(help="127.0.0.1; another one needs a key (`memory-anchor keys`).")] = None,
    port: Annotated[int | None, typer.Option()] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="PEM", help="Without a proxy that does TLS.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="PEM")] = None,
) -> None:
    """Serve MCP and /v1 over HTTP, on loopback or (with keys) to a team."""
    os.umask(0o077)
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.extensions.service.http_api import open_listener
    from memory_anchor.extensions.service.http_api import serve as serve_http
    from memory_anchor.front.backend import owned_core
    from memory_anchor.process.app import settings_of

    options = {"host": host, "port": port, "tls_cert": tls_cert, "tls_key": tls_key}
    http = {name: value for name, value in options.items() if value is not None}
    settings = settings_of(os.environ, {"http": http} if http else None)
    if not settings.project_dir:  # the folder it is started in, as for any other command
        settings = settings.model_copy(update={"project_dir": preamble().project_dir})
    listener = open_listener(settings, keys_here(), SystemClock().now())
    with listener, owned_core(settings, data_dir()) as core:
        serve_http(core, settings, listener, zone=preamble().zone)
