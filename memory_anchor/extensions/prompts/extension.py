"""A whole prompt made from a request: messages, memories and tools within a budget."""

from __future__ import annotations

from memory_anchor.extensions.extension import Extension

EXTENSION = Extension(name="prompts")
