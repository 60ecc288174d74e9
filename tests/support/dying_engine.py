"""The real engine, bridge and all, which kills itself once, where the file `die` in its data directory says.

`work`: after everything of a write is done. `answer`: after its answer was kept, before it is sent. `put:2`: after the
second batch that was put, in its transaction; `stored:1`: after the COMMIT of the first. What would have been answered,
and what is stored, go to `died.json` first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from memory_anchor.front import engine as product
from memory_anchor.runtime import bridge, engine

DIE, DIED = "die", "died.json"
COMMAND = [sys.executable, __file__, "engine"]


class Death:
    def __init__(self, data: Path, core: Any) -> None:
        self.file, self.note, self.core, self.puts, self.armed = data / DIE, data / DIED, core, 0, 0

    def at(self, point: str, answer: object = None) -> None:
        if not self.file.exists() or self.file.read_text() != point:
            return
        self.note.write_text(json.dumps({"answer": answer, "stored": stored(self.core.services.store)}, default=str))
        self.file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def stored(store: Any) -> list[list[Any]]:
    """Return every version there is, without what use changes."""
    from memory_anchor.domain.model import COLLECTIONS
    from memory_anchor.domain.where import Where

    versions = [e.memory for name in COLLECTIONS for e in store.scan(name, Where(), page=1000)[0]]
    return sorted([one.id, one.version, one.status.value, one.content] for one in versions)


def mortal(lock: Any) -> Any:
    """Return the memory's own backend; deaths are put where a power button would be."""
    from memory_anchor.base.idempotency import FirstAnswers
    from memory_anchor.hooks.hooks import Hooks

    backend: Any = product.memory(lock)
    death = Death(lock.directory, backend.core)
    once, put = FirstAnswers.once, backend.core.services.store.put

    def dying_once(self: Any, key: str, fingerprint: str, work: Any, **more: Any) -> Any:
        def worked() -> Any:
            answer = work()
            death.at("work", answer)
            return answer

        answer = once(self, key, fingerprint, worked, **more)
        death.at("answer", answer)
        return answer

    def dying_put(collection: str, entries: Any) -> None:
        put(collection, entries)
        if death.file.exists() and entries:
            armed = death.file.stat().st_mtime_ns
            death.puts, death.armed = (death.puts if armed == death.armed else 0) + 1, armed
            death.at(f"put:{death.puts}")
            backend.core.services.store.database.afterwards(partial(death.at, f"stored:{death.puts}"))

    def dying_hook(method: Any) -> Any:
        def answered(*given: Any, **more: Any) -> Any:
            answer = method(*given, **more)
            death.at("work", answer)
            return answer

        return answered

    FirstAnswers.once = dying_once  # type: ignore[method-assign]
    Hooks.answer = dying_hook(Hooks.answer)  # type: ignore[method-assign]
    Hooks.in_background = dying_hook(Hooks.in_background)  # type: ignore[method-assign]
    backend.core.services.store.put = dying_put
    return backend


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        sys.exit(engine.main(mortal))
    sys.exit(bridge.main(sys.argv[2:], engine=COMMAND))
