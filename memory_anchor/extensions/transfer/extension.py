"""Moving memories in and out: exports, imports, other tools" data."""

from __future__ import annotations

from memory_anchor.extensions.extension import Extension

EXTENSION = Extension(name="transfer", commands=("export", "import"))
