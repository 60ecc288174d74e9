"""Readers of more agents: those that keep their sessions in databases or in many files each, and the neutral format."""

from __future__ import annotations

from memory_anchor.extensions.extension import Extension

READERS = ("gemini", "qwen", "copilot", "cursor", "opencode", "cline", "goose", "aider", "jsonl")
EXTENSION = Extension(name="more_agents", readers=READERS)
