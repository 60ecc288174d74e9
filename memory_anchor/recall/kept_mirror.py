"""The mirror that a process before saved, brought after the store that it is of.

Nothing of it is believed: a version counts where its number and its checksum are the store's, whatever became of the
store meanwhile: writes, a restore, another database in its place. So it need not be saved in step with anything, and a
process that is killed leaves it as it was. Reading numbers and checksums takes a tenth of reading all versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from memory_anchor.domain.ports import FollowedRows, FollowedStore, Snapshot
    from memory_anchor.recall.mirror import Mirror

WARM_PAGE = 100
"""Memories read in one go: about 10 ms in which a search waits."""
WORTH_TAKING = 0.7
"""Share of what was saved that must still hold."""


def kept_mirror(
    snapshot: Snapshot,
    store: FollowedStore,
    layers: Sequence[str],
    mirror: Mirror,
    put: Callable[[Mirror, FollowedRows], bool],
) -> tuple[Mirror, int] | None:
    """Return the saved mirror with all versions of the store, and how many of its rows are saved as they are, 0 where
    it had to be changed; None where none of use was saved.

    mirror: an empty one. What may have been erased meanwhile is removed from the disk.
    """
    arrays = snapshot.read()
    try:
        if arrays is None:
            return None
        mirror.load_arrays(arrays)
    except (KeyError, ValueError, TypeError):
        snapshot.drop()
        return None
    mirror.is_whole = True
    numbers, checksums = store.checksums(layers)
    is_sound = mirror.is_as(numbers, checksums)
    known = mirror.columns.arrays["number"][: len(mirror)][is_sound]
    missing = numbers[np.isin(numbers, known, invert=True)]
    if len(known) < WORTH_TAKING * max(len(mirror), len(numbers)):
        snapshot.drop()
        return None
    for first in range(0, len(missing), WARM_PAGE):
        versions = store.of_numbers(layers, missing[first : first + WARM_PAGE].tolist())
        if versions is not None:
            put(mirror, versions)
    if not mirror.is_whole:  # old versions and new ones are too many together
        snapshot.drop()
        return None
    mirror.keep(mirror.is_as(numbers, checksums))
    if mirror.points.has_gaps:
        snapshot.drop()
    return mirror, 0 if len(missing) else len(mirror)
