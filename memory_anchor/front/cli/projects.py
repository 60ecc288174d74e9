"""Commands about which project a folder is: projects list, link, move, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memory_anchor.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import JsonOption, guarded, out, quiet, show_json, shown
from memory_anchor.front.cli.passphrase import ask_human
from memory_anchor.front.cli.spoken import whole_project
from memory_anchor.json_values import items, record, records

HELP = "Which folders share one memory: list, link, move, merge."


def register(app: typer.Typer) -> None:
    projects = group(app, "projects", HELP)
    projects.command("list")(list_)
    projects.command("link")(link)
    projects.command("move")(move)
    projects.command("merge")(merge)


@guarded
def list_(json_: JsonOption = False) -> None:
    """Show every project with its folders, its memories, and which other one it may be."""
    answer = call("projects_list")
    if json_:
        show_json(answer)
        return
    for one in records(answer["projects"]):
        mark = " [green](here)[/]" if one["here"] else ""
        out.print(f"[cyan]{shown(one['id'])}[/]{mark} [dim]{one['memories']} memories[/]")
        for path in items(one["paths"]):
            out.print(f"  {shown(path)}")
        for remote in items(one["remotes"]):
            out.print(f"  [dim]{shown(remote)}[/]")
        if one["may_be"]:
            out.print(f"  [yellow]may be {shown(one['may_be'])}: {shown(one['why'])}[/]")
    if not answer["projects"]:
        quiet("no project is known yet; the first agent or command in a folder makes one")


@guarded
def link(
    project: Annotated[
        str,
        typer.Argument(
            help="The project's id; left out: the one this folder may be.", autocompletion=completing.projects
        ),
    ] = "",
    folder: Annotated[Path | None, typer.Option(help="Another folder than this one.")] = None,
    json_: JsonOption = False,
) -> None:
    """Say that this folder belongs to a known project; needs the passphrase."""
    linked(whole_project(project) if project else _likely(), folder, moved=False, as_json=json_)


@guarded
def move(
    project: Annotated[str, typer.Argument(help="The project's id.", autocompletion=completing.projects)],
    folder: Annotated[Path | None, typer.Option(help="Where it is now; left out: here.")] = None,
    json_: JsonOption = False,
) -> None:
    """Say that a project is in this folder now, and in none of its old ones; needs the passphrase."""
    linked(whole_project(project), folder, moved=True, as_json=json_)


@guarded
def merge(
    source: Annotated[str, typer.Argument(help="The project whose memories move.", autocompletion=completing.projects)],
    target: Annotated[str, typer.Argument(help="The project they move to.", autocompletion=completing.projects)] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Move back what merging SOURCE moved.")] = False,
    json_: JsonOption = False,
) -> None:
    """Move every memory and folder of one project to another; needs the passphrase, and --undo takes it back."""
    if bool(target) == undo:
        raise BadInput("merge needs SOURCE and TARGET, or SOURCE with --undo")
    source, target = whole_project(source), whole_project(target)
    answer = call("projects_merge", source=source, target=target or None, undo=undo or None, human=ask_human())
    if json_:
        show_json(answer)
    elif undo:
        quiet(f"{answer['versions']} versions are {source}'s again")
    else:
        quiet(f"{answer['versions']} versions are {target}'s now; `memory-anchor projects merge {source} --undo`")


def _likely() -> str:
    here = next((one for one in records(call("projects_list")["projects"]) if one["here"] and one["may_be"]), None)
    if here is None:
        raise BadInput("this folder looks like no other project; name one: `memory-anchor projects list`")
    out.print(f"this folder may be [cyan]{shown(record(here)['may_be'])}[/]: {shown(here['why'])}")
    if not typer.confirm("Is it that project?", default=False):
        quiet("nothing was linked")
        raise typer.Exit(0)
    return str(record(here)["may_be"])


def linked(project: str, folder: Path | None, *, moved: bool, as_json: bool) -> None:
    where = str(folder.absolute()) if folder is not None else None
    answer = call("projects_link", project=project, folder=where, moved=moved or None, human=ask_human())
    if as_json:
        show_json(answer)
        return
    quiet(f"{answer['folder']} is project {project}")
    if answer["left_behind"]:
        quiet(
            f"{answer['left_behind']} memories stay with {answer['was']}, which it was until now; "
            f"`memory-anchor projects merge {answer['was']} {project}` brings them"
        )
