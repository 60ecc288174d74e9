"""One call of the table (`front/calls.py`) to a running engine, sent again where it ended meanwhile.

Commands and the library ask through this; a bridge has a connection of its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Record, record
from memory_anchor.domain.errors import Unavailable, reported
from memory_anchor.runtime import wire

if TYPE_CHECKING:
    from pathlib import Path

CALL_TIMEOUT_S = 600.0
RESENDS = 4
RESEND_PAUSE_S = 0.25


def ask_engine(data: Path, caller: wire.Preamble, name: str, arguments: Record, *, resends: bool) -> Record | None:
    """Return the engine's answer, None when none runs.

    resends: a call with a nonce is sent again when the engine ends during it, which the nonce makes harmless; a few
    times, since a killed engine may still accept a connection. Raises our errors, as the engine reported them.
    """
    for left in range(RESENDS if resends else 0, -1, -1):
        try:
            return ask_once(data, caller, name, arguments)
        except ConnectionResetError:
            if left:
                time.sleep(RESEND_PAUSE_S)
    raise Unavailable("the engine ended while it worked on this; try again")


def ask_once(data: Path, caller: wire.Preamble, name: str, arguments: Record) -> Record | None:
    """Return the engine's answer, None when none runs.

    Raises ConnectionResetError: it ended before it answered. Raises our errors, as the engine reported them.
    """

    def alive() -> object:
        from memory_anchor.runtime.engine import status

        return status(data)

    try:
        answer = wire.ask(
            str(data),
            "call",
            caller,
            timeout_s=CALL_TIMEOUT_S,
            alive=alive,
            name=name,
            arguments=dict(arguments),
        )
    except TimeoutError:
        raise Unavailable(
            f"the engine did not answer within {CALL_TIMEOUT_S:g} s; see `memory-anchor engine status`"
        ) from None
    except (ConnectionResetError, BrokenPipeError) as error:
        raise ConnectionResetError(str(error)) from None
    except OSError:
        return None
    if answer.get("ending"):
        raise ConnectionResetError("the engine is ending")
    if "error" in answer:
        raise reported(record(answer["error"]), "the engine failed")
    result = answer.get("result")
    return result if isinstance(result, dict) else {}
