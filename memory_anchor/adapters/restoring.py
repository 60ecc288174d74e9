"""The last step of a restore: moving a complete new directory's entries in, finished by the next process to open it.

The journal names the old entries and both folders. Any of the moves may have happened already, so all of them are
repeated from the start; the lock on the directory is held.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from memory_anchor.base.files import file_error, remove_durably, sync_folder
from memory_anchor.domain.errors import StoreDamaged

JOURNAL, STAGING = "restoring.json", "restore-"


def finish_restore(data_dir: Path) -> bool:
    """Finish a restore that was interrupted in its last step; return whether there was one.

    What one that was killed earlier unpacked is removed. Raises StoreDamaged: the journal cannot be read, and nothing
    is guessed.
    """
    path = data_dir / JOURNAL
    is_begun = path.exists()
    if is_begun:
        _move_in(data_dir, path)
    for staging in data_dir.glob(f"{STAGING}*"):
        shutil.rmtree(staging, ignore_errors=True)
    if is_begun:
        remove_durably(path)
    return is_begun


def _move_in(data_dir: Path, path: Path) -> None:
    try:
        journal = json.loads(path.read_text(encoding="utf-8"))
        staging, aside = data_dir / str(journal["staging"]), data_dir / str(journal["aside"])
        for name in map(str, journal["old"]):
            (aside / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (data_dir / name).exists() and not (aside / name).exists():
                (data_dir / name).rename(aside / name)
        # The old entries must be out of the way on disk before the new ones move in.
        sync_folder(aside)
        sync_folder(data_dir)
        new = staging / "new"
        for entry in sorted(new.iterdir()) if new.is_dir() else ():
            entry.rename(data_dir / entry.name)
        sync_folder(data_dir)
        sync_folder(new)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"{path} cannot be read; move it away and restore the backup again.") from error
    except OSError as error:
        raise file_error(error, data_dir) from error
