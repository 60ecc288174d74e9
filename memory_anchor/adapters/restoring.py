"""The last step of a restore: moving a complete new directory's entries in, finished by whoever opens it next.

The journal names the old entries and where both sides lie. Every move may have happened already, so the whole is
repeated from its start until it is done; the lock on the directory is held.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from memory_anchor.errors import StoreDamaged
from memory_anchor.files import ours, remove_durably, sync_folder

JOURNAL = "restoring.json"


def finish_restore(data_dir: Path) -> bool:
    """Finish a restore that was cut off in its last step; return whether there was one. The lock is held.

    Raises StoreDamaged: the journal cannot be read, so that nothing is guessed.
    """
    journal = data_dir / JOURNAL
    if not journal.exists():
        return False
    try:
        told = json.loads(journal.read_text(encoding="utf-8"))
        staging, aside, old = str(told["staging"]), str(told["aside"]), [str(name) for name in told["old"]]
        new = data_dir / staging / "new"
        for name in old:
            (data_dir / aside).mkdir(mode=0o700, exist_ok=True)
            if (data_dir / name).exists() and not (data_dir / aside / name).exists():
                (data_dir / name).rename(data_dir / aside / name)
        # What moves in may only be on disk when what was there is out of the way there too.
        sync_folder(data_dir / aside)
        sync_folder(data_dir)
        for path in sorted(new.iterdir()) if new.is_dir() else ():
            path.rename(data_dir / path.name)
        sync_folder(data_dir)
        sync_folder(new)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"{journal} cannot be read; move it away and restore the backup again.") from error
    except OSError as error:
        raise ours(error, data_dir) from error
    shutil.rmtree(data_dir / staging, ignore_errors=True)
    remove_durably(journal)
    return True
