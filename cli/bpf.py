"""eBPF objects from our C sources. The compiler is a development tool: nodes get the objects."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from agent.network.bpf import objects

_FLAGS = (
    "-O2",
    "-g",
    "-target",
    "bpf",
    "-mcpu=v3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fdebug-compilation-dir=.",
)
_TARGET_HEADERS = f"/usr/include/{platform.machine()}-linux-gnu"
"""Where Debian keeps <asm/types.h>, which clang looks for in the BPF target's own folder."""
_NEEDLESS = (".BTF.ext", ".rel.BTF.ext", ".rel.BTF", ".llvm_addrsig")
_SECONDS = 120


class CompileError(Exception):
    """The objects cannot be compiled; the message says what is missing or wrong."""


def compiler() -> str:
    """The version of clang, such as 14.0.6. Raises CompileError."""
    found = re.search(r"version (\S+)", _run("clang", "--version"))
    return found[1] if found else "unknown"


def compile_all(folder: Path, into: Path) -> None:
    """Each sources/NAME.c of the folder becomes into/NAME.o, without debugging information.

    Raises CompileError.
    """
    for source in sorted((folder / objects.SOURCES).glob("*.c")):
        made = into / f"{source.stem}.o"
        _run("clang", *_FLAGS, "-I", _TARGET_HEADERS, "-c", source.name, "-o", str(made), cwd=source.parent)
        _run("llvm-strip", "-g", *(f"--remove-section={name}" for name in _NEEDLESS), str(made))


def write(folder: Path) -> None:
    """Compile, and record what from. Raises CompileError; then the objects are as before."""
    into = folder / objects.OBJECTS
    into.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        compile_all(folder, Path(made))
        for old in into.glob("*.o"):
            old.unlink()
        for new in Path(made).iterdir():
            shutil.copyfile(new, into / new.name)
    content = {"clang": compiler(), **objects.sums(folder)}
    (folder / objects.RECORD).write_text(json.dumps(content, indent=2) + "\n")


def _run(*argv: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise CompileError(
            f"{argv[0]} is not installed: `make bpf` installs it (Debian: clang, llvm)"
        ) from None
    if done.returncode != 0:
        raise CompileError(f"{' '.join(argv)}:\n{done.stderr.strip()}")
    return done.stdout
