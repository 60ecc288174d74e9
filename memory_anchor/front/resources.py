"""What a client can read by address: `memory://...`. The same shapes as the tools' answers.

Reading a memory here is a use of it, as with `get_memory`. Addresses are matched by hand: there are six.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from memory_anchor import shapes
from memory_anchor.errors import NotFound
from memory_anchor.front.table import ROWS
from memory_anchor.json_values import Record
from memory_anchor.memory import MemoryAnchor

SCHEME = "memory://"
JSON = "application/json"
MARKDOWN = "text/markdown"
COMPLETIONS_MAX = 100
"""What the protocol allows in one answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """One resource, or a template when `path` ends in a name in braces."""

    path: str
    name: str
    description: str
    mime_type: str = JSON

    @property
    def uri(self) -> str:
        return SCHEME + self.path

    @property
    def is_template(self) -> bool:
        return self.path.endswith("}")


ADDRESSES = (
    Address("constitution", "constitution", "L0: the project's rules, whole"),
    Address("active-context", "active-context", "L1: what this conversation has noted"),
    Address("profile", "profile", "What is known of the user and the project: one page, each line with its fact"),
    Address("stats", "stats", "Counts by layer, memories not embedded yet, size on disk"),
    Address("memories/{id}", "memory", "One memory of L2 or L3 with its sources"),
    Address("operations/{name}", "operation", "L4: one file of .ai/operations/, whole", MARKDOWN),
)


@dataclass(frozen=True, slots=True)
class Content:
    text: str
    mime_type: str


def completions(anchor: MemoryAnchor, uri: str, typed: str) -> list[str]:
    """Return what a template's name may be, for the beginning typed; only how-tos have names that people know."""
    if uri != f"{SCHEME}operations/{{name}}":
        return []
    return [name for name in anchor.room.operations.names() if name.startswith(typed)][:COMPLETIONS_MAX]


def read(anchor: MemoryAnchor, uri: str, *, stats: Callable[[], Record]) -> Content:
    """Return what stands at `uri`. Raises NotFound: no such address, memory or file."""
    path = uri.removeprefix(SCHEME).rstrip("/")
    kind, _, name = path.partition("/")
    if not uri.startswith(SCHEME):
        kind = ""
    match kind, unquote(name):
        case "constitution", "":
            return Content(_compact(anchor, "constitution"), JSON)
        case "active-context", "":
            return Content(_compact(anchor, "active"), JSON)
        case "profile", "":
            return Content(_compact(anchor, "profile"), JSON)
        case "stats", "":
            return Content(shapes.compact(stats()), JSON)
        case "memories", found if found:
            return Content(_compact(anchor, "get", id=found), JSON)
        case "operations", found if found:
            return Content(shapes.shortened_text(anchor.room.operations.read(found).text, found), MARKDOWN)
    raise NotFound(f"no resource {uri[:120]!r}; there are {', '.join(one.uri for one in ADDRESSES)}")


def _compact(anchor: MemoryAnchor, name: str, **fields: str) -> str:
    row = ROWS[name]
    return shapes.compact(row.answer(anchor, row.request.of(**fields)))
