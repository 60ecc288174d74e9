"""Commands that sync the devices of one person: sync setup, now, status, revoke."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.base.json_values import Record, items, record, records, text, texts, whole
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, data_dir
from memory_anchor.front.cli.output import (
    HumanOption,
    JsonOption,
    err,
    escaped,
    handle_errors,
    out,
    print_dim,
    show_json,
)
from memory_anchor.front.cli.passphrase import ask_hidden, ask_human
from memory_anchor.front.cli.spinner import Spinner

if TYPE_CHECKING:
    from memory_anchor.extensions.devices.membership import Device
    from memory_anchor.identity.keys import Signer

HELP = "Keep the memories of your devices alike through a folder that you share anyway: setup, now, status, revoke."
NAME_MAX = 40


def register(app: typer.Typer) -> None:
    sync = group(app, "sync", HELP)
    sync.command("setup")(setup)
    sync.command("now")(now)
    sync.command("status")(status)
    sync.command("revoke")(revoke)


@handle_errors
def setup(
    folder: Annotated[
        Path | None, typer.Argument(help="Any folder that is carried between devices; left out: the one set up.")
    ] = None,
    name: Annotated[str, typer.Option(help="What this device is called; left out: the host's name.")] = "",
    project: Annotated[
        list[str] | None,
        typer.Option(
            "--project",
            metavar="ID",
            help="A project to sync, or ID=SHARED; left out: this folder's.",
            autocompletion=completing.projects,
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every project, later ones too.")] = False,
    git: Annotated[
        bool, typer.Option("--git", help="The folder is a Git working copy: fetch, commit and push.")
    ] = False,
    new_device: Annotated[bool, typer.Option("--new-device", help="Join as another device than before.")] = False,
    json_: JsonOption = False,
) -> None:
    """Join a sync folder, or begin one; needs your passphrase, and one for the folder that all your devices share."""
    from memory_anchor.adapters.system import new_token
    from memory_anchor.extensions.devices import membership
    from memory_anchor.extensions.devices.exchange import map_projects
    from memory_anchor.extensions.devices.folder import SyncFolder
    from memory_anchor.process.app import settings_of

    data = data_dir()
    before = _device(data) if folder is None else None
    if folder is None and before is None:
        raise BadInput("sync is not set up here; name a folder: `memory-anchor sync setup FOLDER`")
    shared = SyncFolder(Path(before.folder)) if before else SyncFolder.below((folder or Path()).expanduser().absolute())
    parent = shared.root.parent
    if not parent.is_dir():
        raise BadInput(f"{parent} is no folder; make it first, or name another")
    if git and not ((shared.root / ".git").exists() or (parent / ".git").exists()):
        raise BadInput(f"{parent} is no Git working copy; clone your repository there first")
    own, wanted = _wanted(project or [], everything=all_ or bool(before and before.everything), before=before)
    signer = ask_human()
    passphrase = _sync_passphrase(is_new=shared.head() is None)
    scope = settings_of(os.environ).scope
    with membership.exchange_lock(data):
        device = membership.join(
            data,
            shared,
            passphrase=passphrase,
            name=name or (before.name if before is not None else _host()),
            account=scope.account,
            user=scope.user,
            human=signer.approver.public,
            projects=lambda shared: map_projects(shared, own, wanted),
            everything=all_ or bool(before and before.everything),
            git=git or bool(before and before.git),
            as_new_device=new_device,
            now=datetime.now(UTC),
            new_token=new_token,
        )
    answer = _exchange()
    if json_:
        show_json({"name": device.name, "folder": device.folder, "projects": dict(device.projects), **answer})
        return
    print_dim(f"{escaped(device.name)} syncs {len(device.projects)} projects through {escaped(device.folder)}")
    _show_exchange(answer)
    print_dim("on your next device: `memory-anchor sync setup FOLDER`, with the same sync passphrase")


@handle_errors
def now(human: HumanOption = False, json_: JsonOption = False) -> None:
    """Exchange with your other devices now; --human also signs what was purged here, so that it goes everywhere."""
    if human:
        unsigned = texts(call("sync_unsigned")["ids"])
        _show_purged(unsigned)
        sign_purge(ask_human(), unsigned)
    answer = _exchange()
    if json_:
        show_json(answer)
    else:
        _show_exchange(answer)


@handle_errors
def status(json_: JsonOption = False) -> None:
    """Show the folder, the devices, what waits, and what is wrong with its cure."""
    answer = call("sync_status")
    if json_:
        show_json(answer)
        return
    if not answer["set_up"]:
        print_dim("sync is not set up here; `memory-anchor sync setup FOLDER` does it")
        return
    out.print(
        f"[cyan]{escaped(answer['name'])}[/] in {escaped(answer['folder'])} [dim]{answer['versions']} versions[/]"
    )
    for device in records(answer.get("devices", ())):
        state = "revoked" if device["revoked"] else f"read up to segment {device['read']}"
        out.print(f"  [cyan]{escaped(device['name'])}[/] [dim]{'this one' if device['here'] else state}[/]")
    for own, shared in record(answer["projects"]).items():
        out.print(f"  [dim]project {escaped(own)}{'' if own == shared else f' (shared as {escaped(shared)})'}[/]")
    last = record(answer["last"])
    if last:
        at = text(last["at"])[:16]
        out.print(f"[dim]last exchange {at} UTC: {last['sent']} sent, {last['received']} received[/]")
    if answer.get("foreign_files"):
        print_dim(f"{answer['foreign_files']} files in the folder are not ours and were left alone")
    for note in dict.fromkeys([*texts(answer["notes"]), *texts(last.get("notes"))]):
        out.print(f"[yellow]{escaped(note)}[/]")
    _show_unsigned(len(items(answer["unsigned"])))


@handle_errors
def revoke(
    name: Annotated[str, typer.Argument(help="The device that was lost or sold.", autocompletion=completing.devices)],
    json_: JsonOption = False,
) -> None:
    """Shut a device out: nothing later of it counts, and it can read nothing later; needs both passphrases."""
    from memory_anchor.adapters.system import new_token
    from memory_anchor.extensions.devices import membership
    from memory_anchor.extensions.devices.ledger import ChainPosition

    data = data_dir()
    _exchange()  # what it wrote up to now counts
    device = _device(data)
    if device is None:
        raise BadInput("sync is not set up here; `memory-anchor sync setup FOLDER` does it")
    ask_human()
    passphrase = _sync_passphrase(is_new=False)

    def position_of(other: str) -> ChainPosition:
        answer = call("sync_reached", device=other)
        reached = ChainPosition(whole(answer["generation"]), whole(answer["segment"]))
        about = f"what {name} wrote up to segment {reached.segment} of generation {reached.generation} counts"
        err.print(f"[dim]{escaped(about)}[/]")
        return reached

    with membership.exchange_lock(data):
        device = membership.load(data) or device
        gone = membership.revoke(
            data, device, name, passphrase, position_of=position_of, now=datetime.now(UTC), new_token=new_token
        )
    answer = _exchange()
    if json_:
        show_json({"revoked": gone.name, "device": gone.device, **answer})
        return
    print_dim(f"{escaped(gone.name)} counts no more, and opens nothing that is written from now on")
    print_dim("what it had read it still has; a lost device that you can reach: `memory-anchor purge` there first")


def _exchange() -> Record:
    with Spinner("exchanging with your other devices"):
        return call("sync_now")


def sign_purge(signer: Signer, ids: Sequence[str]) -> None:
    """Sign that the memories of these ids, which were just shown, are purged on this person's other devices too."""
    device = _device(data_dir())
    if device is None or not ids:
        return
    from memory_anchor.identity.statements import Purged

    err.print(f"[dim]signed for the devices of the sync folder {escaped(device.folder_id)}: {len(ids)} memories go[/]")
    purged = Purged(device.folder_id, tuple(sorted(ids)), datetime.now(UTC).isoformat())
    signature = signer.purge(purged)
    answer = call("sync_signed", said=purged.record(), signature=signature, by=signer.approver.name)
    err.print(f"[dim]{answer['signed']} purged memories go from your other devices too, at their next sync[/]")


def _show_purged(ids: Sequence[str]) -> None:
    for id_ in ids:
        err.print(f"  [cyan]{escaped(id_)}[/] [dim]was purged here, its text is gone[/]")


def _wanted(
    chosen: list[str], *, everything: bool, before: Device | None
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return (every project here with its remotes and first commits, id -> shared id of those to sync)."""
    listed = records(call("projects_list")["projects"])
    own = {
        text(project["id"]): [
            *(f"remote:{name}" for name in items(project["remotes"])),
            *(f"root:{name}" for name in items(project["first_commits"])),
        ]
        for project in listed
    }
    if everything:
        return own, dict.fromkeys(own, "")
    if not chosen:
        synced = dict(before.projects) if before is not None else {}
        here = next((text(project["id"]) for project in listed if project["here"]), None)
        wanted = synced or ({here: ""} if here else {})
    else:
        wanted = dict(option.partition("=")[::2] for option in chosen)
    unknown = sorted(set(wanted) - set(own))
    if unknown:
        raise BadInput(f"no project {unknown[0][:80]!r} here; `memory-anchor projects list` gives those there are")
    if not wanted:
        raise BadInput("this folder is no project yet; run it in one, name --project ID, or say --all")
    return own, wanted


def _sync_passphrase(*, is_new: bool) -> str:
    typed = ask_hidden("Sync passphrase (the same on all your devices): ")
    if is_new and ask_hidden("Once more: ") != typed:
        raise Refused("the two sync passphrases differ; nothing was set up")
    return typed


def _device(data: Path) -> Device | None:
    from memory_anchor.extensions.devices import membership

    return membership.load(data)


def _host() -> str:
    name = "".join(char if char.isalnum() or char in "-_." else "-" for char in socket.gethostname().split(".")[0])
    return name[:NAME_MAX] or "device"


def _show_exchange(answer: Record) -> None:
    if not answer.get("set_up", True):
        print_dim("sync is not set up here; `memory-anchor sync setup FOLDER` does it")
        return
    counts = f"{answer['sent']} versions sent, {answer['received']} received"
    print_dim(counts + (f", {answer['purged']} purged" if answer["purged"] else ""))
    if answer["disputed"]:
        print_dim(f"{answer['disputed']} were written on two devices at once: `memory-anchor review` shows them")
    for note in items(answer["notes"]):
        err.print(f"[yellow]{escaped(note)}[/]")
    _show_unsigned(whole(answer["unsigned"]))


def _show_unsigned(many: int) -> None:
    if many:
        err.print(
            f"[yellow]{many} memories were purged here and wait for your signature before they go elsewhere: "
            "`memory-anchor sync now --human`[/]"
        )
