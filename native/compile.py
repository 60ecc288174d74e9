"""Hatch's build hook: compiles the engine into the wheel, or leaves the wheel pure where that is not possible."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = ("weights.c", "tokens.c", "embed.c")
FLAGS = "-std=gnu11 -O3 -fPIC -shared -fvisibility=hidden -fno-math-errno -fno-trapping-math -Wno-psabi -pthread -lm"


def compiled(folder: Path, library: Path) -> str:
    """Compile the sources; return what went wrong, "" for nothing. CC names the compiler, `cc` is the default."""
    command = [*shlex.split(os.environ.get("CC") or "cc"), *(str(folder / name) for name in SOURCES)]
    library.parent.mkdir(exist_ok=True)
    library.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [*command, "-o", str(library), *shlex.split(FLAGS)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"no C compiler: {error}"
    return done.stderr.strip() or "the compiler failed" if done.returncode else ""


class CompileHook(BuildHookInterface[Any]):
    """Adds the library, and the platform to the wheel's name; no part of Python is in it, so any version will do."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        root = Path(self.root)
        library = root / "build" / "_engine.so"
        if self.target_name != "wheel":
            return
        if failure := compiled(root / "src", library):
            self.app.display_warning(f"memory-anchor-native is built without its engine ({failure})")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(library)] = "memory_anchor_native/_engine.so"
