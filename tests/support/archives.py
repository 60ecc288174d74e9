"""Archives as tests unpack them: on every Python from 3.11.0 on."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive that this program or a test has made.

    `filter` came with Python 3.11.4; Debian 12 has 3.11.2, where what we packed ourselves needs none.
    """
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(folder, filter="data")
        else:
            packed.extractall(folder)  # noqa: S202 - our own archive
