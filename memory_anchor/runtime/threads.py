"""One thread for linear algebra; the embedder has its own.

OpenBLAS, which numpy uses, keeps one thread a core and lets idle ones spin for some 25 ms, while the next query is
embedded: over 100,000 memories that took 23 ms instead of 15. No product here is large enough to gain from a second
thread. Rejected: threadpoolctl, since an environment variable works before the library starts any thread.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ALGEBRA = ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What numpy's wheels read, once, when numpy is imported: OpenBLAS (Linux, Windows), Accelerate (macOS)."""


def one_for_algebra() -> None:
    """Let linear algebra compute in the calling thread, before numpy loads; a number the user set stays."""
    for name in ALGEBRA:
        os.environ.setdefault(name, "1")


def no_plugins() -> None:
    """Let pydantic look for no plugins: it reads the metadata of every package for that, 10 ms of each command."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@contextmanager
def uncollected() -> Iterator[None]:
    """Let nothing look for cycles while modules load: all that they make stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
