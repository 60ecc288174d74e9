"""How many threads compute here: one for linear algebra; the embedder brings its own.

OpenBLAS, which numpy uses, keeps one thread a core and lets those without work spin for some 25 ms. The next query's
embedding then shares the cores with them: over 100,000 memories it took 23 ms instead of 15. No product in this program
is large enough to gain from a second thread. Rejected: threadpoolctl, since a name in the environment does it before
the library starts any thread.
"""

from __future__ import annotations

import os

ALGEBRA = ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What numpy's wheels read, once, when numpy is imported: OpenBLAS (Linux, Windows), Accelerate (macOS)."""


def one_for_algebra() -> None:
    """Let linear algebra compute in the calling thread, before numpy loads; a number the user set stays."""
    for name in ALGEBRA:
        os.environ.setdefault(name, "1")
