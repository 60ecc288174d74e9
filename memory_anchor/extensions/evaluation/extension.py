"""Golden questions asked of one's own memory, and the figures that compare variants."""

from __future__ import annotations

from memory_anchor.extensions.extension import Extension

EXTENSION = Extension(name="evaluation", commands=("eval", "variants"))
