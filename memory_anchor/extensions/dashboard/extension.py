"""Pages on loopback for a human: what waits, search, history, health."""

from __future__ import annotations

from memory_anchor.extensions.extension import Extension

EXTENSION = Extension(name="dashboard", commands=("dashboard",))
