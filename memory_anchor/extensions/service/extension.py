"""A served memory: HTTP and `/v1`, access keys, limits, batches, metrics; asking one first."""

from __future__ import annotations

from memory_anchor.extensions.extension import Extension

EXTENSION = Extension(name="service", brings=("commands", "calls"))
