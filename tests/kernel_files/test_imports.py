"""What the hook imports on a node: a handful of built-in modules and ours, on every Python."""

from __future__ import annotations

import ast
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import kernel

FOLDER = Path(kernel.__file__).parent
MODULES = sorted(f"kernel.{file.stem}" for file in FOLDER.glob("*.py") if file.stem != "__init__")
ALLOWED = {"sys", "posix", "errno", "time", "_json"}
LISTING = "import sys; print(*sorted(sys.modules))"
IMPORTING = """import sys
sys.path.insert(0, {root!r})
for name in {modules!r}:
    __import__(name)
"""


def _modules(python: str, code: str) -> set[str]:
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_every_module_imports_nothing_else(python: str) -> None:
    before = _modules(python, LISTING)
    code = IMPORTING.format(root=str(FOLDER.parent), modules=MODULES)
    after = _modules(python, code + LISTING)
    assert after - before <= ALLOWED | {"kernel", *MODULES}
    assert set(MODULES) <= after


def test_the_test_would_notice(python: str) -> None:
    """A module that imports json brings it along: the comparison above is not vacuous."""
    brought = _modules(python, "import json\n" + LISTING) - _modules(python, LISTING)
    assert not brought <= ALLOWED


def _imported(module: str) -> set[str]:
    """Of kernel/, within functions, too."""
    found = ast.walk(ast.parse((FOLDER / f"{module.partition('.')[2]}.py").read_text()))
    froms = [one for one in found if isinstance(one, ast.ImportFrom)]
    return {one.module or "" for one in froms} | {
        f"{one.module}.{name.name}" for one in froms for name in one.names
    }


def test_no_module_imports_what_imports_it() -> None:
    imported = {name: _imported(name) & set(MODULES) for name in MODULES}
    assert imported["kernel.values"] == {"kernel.allowed", "kernel.lists", "kernel.numbers"}
    list(TopologicalSorter(imported).static_order())  # CycleError names the circle


def test_what_the_hook_needs_runs(python: str, tmp_path: Path) -> None:
    """The syntax of a version shows at import, its library only when it is used."""
    code = f"""import sys
sys.path.insert(0, {str(FOLDER.parent)!r})
from kernel import apply, cache, lists, membership, target, values
entries = [(0, "set", "memory.low", "4096"), (-1, "set", "oom_score_adj", "-5")]
cache.write({str(tmp_path)!r}, "k", 0, {{"*": entries}})
assert cache.read({str(tmp_path)!r}, "k", "c", 1.5)[1] == entries
assert values.higher("cpuset.cpus", "0-3", "4") == values.MIXED
uid = "pod0a1b2c3d-0000-4000-8000-000000000001"
assert membership.qos_class("/kubepods/burstable/" + uid) == "Burstable"
try:
    target.from_pid(1, "x")
except target.Refused as refused:
    print(refused)
"""
    assert "container's" in _modules(python, code)
