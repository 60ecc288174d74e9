"""`memory-anchor dashboard`: serves the pages until Ctrl-C."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli.output import JsonOption, handle_errors, print_dim

PORT_MAX = 65_535


def register(app: typer.Typer) -> None:
    app.command()(dashboard)


@handle_errors
def dashboard(port: Annotated[int, typer.Option(help="0 for any free one.")] = 0, json_: JsonOption = False) -> None:
    """Open your memory in a browser: what waits for you, search, history, health. Loopback only."""
    if not 0 <= port <= PORT_MAX:
        raise BadInput(f"--port is {port}; allowed are 0 to {PORT_MAX}, 0 for any free one")
    from memory_anchor.extensions.dashboard.app import serve

    def announce(link: str) -> None:
        sys.stdout.write((json.dumps({"url": link}) if json_ else link) + "\n")
        sys.stdout.flush()
        if json_:
            return
        print_dim("opens once, within 15 minutes; whatever changes a memory asks for your passphrase in the page")
        print_dim("Ctrl-C ends it, and with it every page that is open")

    serve(port, announce=announce)
