"""Words of memories made anew when a new version of the package cuts text into other terms.

A store written by an older version would else be asked for "go" where "went" is indexed as such. What the words were
made by is a number beside the job state; where it is not this version's, every memory's words are written again, a page
at a time, and searches go on meanwhile with some of the old ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

from memory_anchor.files import make_private, write_whole
from memory_anchor.lifecycle.reindex import Reindex
from memory_anchor.lifecycle.upkeep import UNLIMITED, JobReport, Limits, Upkeep
from memory_anchor.model import COLLECTIONS
from memory_anchor.text.terms import TERMS_VERSION
from memory_anchor.where import Where

FOLDER = "words"
FILE = "words.json"


def renew_words(
    up: Upkeep, at: datetime, limits: Limits = UNLIMITED, *, on_renewed: Callable[[], None] = lambda: None
) -> JobReport:
    """Write every memory's words anew if an older version made them; a stopped run goes on where it was.

    on_renewed: told when words changed, so that whoever keeps them reads them again. Nothing without a `state_dir`.
    """
    if up.state_dir is None or _made_by(up) == TERMS_VERSION:
        return JobReport("renew_words", at, dry_run=limits.dry_run)
    total = sum(up.store.count(name, Where()) for name in COLLECTIONS)
    if limits.dry_run:
        return JobReport("renew_words", at, dry_run=True, left=bool(total), counts={"memories": total})
    if total:
        run = Reindex(up.store, None, lock=up.lock, state_dir=up.state_dir / FOLDER)
        for _ in run.steps():
            if limits.should_stop():
                return JobReport("renew_words", at, left=True)
            up.stand_aside()
        on_renewed()
    make_private(up.state_dir)
    write_whole(up.state_dir / FILE, json.dumps({"terms": TERMS_VERSION}).encode())
    return JobReport("renew_words", at, counts={"memories": total})


def _made_by(up: Upkeep) -> int | None:
    assert up.state_dir is not None  # noqa: S101 - the caller looked
    try:
        made = json.loads((up.state_dir / FILE).read_text(encoding="utf-8"))["terms"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return made if isinstance(made, int) else None
