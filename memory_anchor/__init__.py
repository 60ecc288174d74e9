"""Long-term memory for agents. `from memory_anchor import Memory, AsyncMemory` is for programs (docs/builders.md)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memory_anchor.domain import errors
    from memory_anchor.domain.errors import MemoryAnchorError
    from memory_anchor.extensions.library.memory import AsyncMemory, Memory

__all__ = ["AsyncMemory", "Memory", "MemoryAnchorError", "errors"]


def not_whole(error: BaseException) -> str:
    """Return one sentence on an installation that lacks even the module that would say it better."""
    return f"the installation is not whole ({error}); run `python -m pip install --force-reinstall memory-anchor`"


def __getattr__(name: str) -> object:
    # Imported when it is asked for: the bridge, which every agent starts, imports this package too.
    if name not in __all__:
        raise AttributeError(f"module 'memory_anchor' has no attribute {name!r}")
    try:
        from memory_anchor.base.installation import reported
    except Exception as error:
        raise ImportError(not_whole(error)) from error
    with reported():
        if name in ("Memory", "AsyncMemory"):
            from memory_anchor.extensions.library import memory

            return getattr(memory, name)
        from memory_anchor.domain import errors

        return errors if name == "errors" else errors.MemoryAnchorError
