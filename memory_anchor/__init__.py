"""Long-term memory for agents. `from memory_anchor import Memory, AsyncMemory` is for programs (docs/builders.md)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memory_anchor.domain import errors
    from memory_anchor.domain.errors import MemoryAnchorError
    from memory_anchor.extensions.library.memory import AsyncMemory, Memory

__all__ = ["AsyncMemory", "Memory", "MemoryAnchorError", "errors"]


def __getattr__(name: str) -> object:
    # Imported when it is asked for: the bridge, which every agent starts, imports this package too.
    if name in ("Memory", "AsyncMemory"):
        from memory_anchor.extensions.library import memory

        return getattr(memory, name)
    if name in ("errors", "MemoryAnchorError"):
        from memory_anchor.domain import errors

        return errors if name == "errors" else errors.MemoryAnchorError
    raise AttributeError(f"module 'memory_anchor' has no attribute {name!r}")
