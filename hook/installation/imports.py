"""Which modules the hook consists of, found by following its imports, and in which order they load."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hook.installation.errors import InstallationError

ENTRY_MODULE = "hook.boot"
PROGRAM = "hook.program"
OURS = ("hook", "kernel", "qos")
PLATFORM = ("_json", "errno", "posix", "sys", "time")
"""What the code may import besides: built into the interpreter, loaded in microseconds."""


def sources(root: Path | None = None) -> dict[str, bytes]:
    """Contents by path (hook/boot.py ...) of every module that the hook imports, and of their packages.

    root: the folder of our packages. Raises InstallationError for an import that is not for the hook.
    """
    root = root or Path(__file__).resolve().parents[2]
    found: dict[str, bytes] = {}
    waiting = [ENTRY_MODULE]
    while waiting:
        module = waiting.pop()
        path = _path(module, lambda candidate: (root / candidate).is_file())
        if path is None or path in found:
            continue
        found[path] = (root / path).read_bytes()
        waiting.append(module.rpartition(".")[0])
        waiting += _ours(module, ast.parse(found[path]))
    return dict(sorted(found.items()))


def load_order(files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """(module, path) of hook.boot, then of what hook.program loads at once, each after what it imports.

    Modules that are imported in a function only are left out: few containers need them.
    """
    ordered: dict[str, str] = {}

    def visit(module: str) -> None:
        path = _path(module, files.__contains__)
        if path is None or module in ordered:
            return
        visit(module.rpartition(".")[0])
        body = [node for node in ast.parse(files[path]).body if not isinstance(node, ast.FunctionDef)]
        for imported in _ours(module, ast.Module(body, [])):
            visit(imported)
        ordered[module] = path

    visit(PROGRAM)
    return [(ENTRY_MODULE, "hook/boot.py"), *ordered.items()]


def _path(module: str, exists: Callable[[str], bool]) -> str | None:
    """Path of one of our modules; None where it is a name inside a module."""
    path = module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if exists(name)), None)


def _ours(module: str, tree: ast.AST) -> Iterator[str]:
    """Names below our packages that the code imports; InstallationError for what the hook must not import."""
    for found in _names(tree):
        top = found.partition(".")[0]
        if top in OURS:
            yield found
        elif top not in PLATFORM:
            raise InstallationError(
                f"{module} imports {found}, which the hook must not: {', '.join(PLATFORM)} and ours only"
            )


def _names(node: ast.AST) -> Iterator[str]:
    """Every name that is imported when the code runs, in order; relative ones begin with a period."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (node.module or "")
        yield origin
        yield from (f"{origin}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _names(child)
