"""How runtimes learn of the hook: an entry of the OCI form, and the hooks.d 1.0.0 file around it.

Sources: oci-hooks(5), https://github.com/opencontainers/runtime-spec/blob/main/config.md#posix-platform-hooks
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from hook.installation.places import Places

_FAIL_OPEN = """\
import time
def say():
    line = "j10ce hook: %s: %s: it starts all the same\\n" % (type(error).__name__, error)
    how = posix.O_WRONLY | posix.O_APPEND | posix.O_NONBLOCK
    posix.write(posix.open("/proc/self/fd/2", how), line.encode("ascii", "replace"))
def drain():
    end = time.monotonic() + 1
    posix.set_blocking(0, False)
    while time.monotonic() < end:
        try:
            if not posix.read(0, 65536):
                return
        except BlockingIOError:
            time.sleep(0.002)
for do in (say, drain):
    try:
        do()
    except BaseException:
        pass
"""
# A text within the text below: it is compiled when it is needed, not at every start of a container (0.2 ms).

ENTRY = f"""\
import marshal, posix, sys
bundle = "%s/%s-%x.bundle" % (sys.argv[1], sys.implementation.cache_tag, sys.hexversion)
try:
    try:
        boot, modules = marshal.loads(posix.read(posix.open(bundle, posix.O_RDONLY), 16777216))
        exec(boot)
        start
    except BaseException:
        sys.path.insert(0, sys.argv[1])
        modules = ()
        from hook.boot import start
    start(modules)
except BaseException as error:
    try:
        exec({_FAIL_OPEN!r})
    finally:
        posix._exit(0)
"""
"""What the interpreter runs: hook/boot.py with all modules, from one file where that is for this Python.

A text and no file, so that a container whose runtime read our entry before the hook was uninstalled starts
all the same: a missing script would be exit code 2, and fail it. Whatever is damaged, it fails open, because
the policy cannot be read; stderr may be closed or full. It reads the state to its end, for at most 1 s: crun
may die of SIGPIPE when nobody does. (The interpreter has loaded marshal long before, to read bytecode.)
"""

TIMEOUT_SECONDS = 2
ENVIRONMENT = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")
"""Never empty: without it a hook inherits the runtime's environment, in some stages the container's."""

CREATE_RUNTIME = "createRuntime"
PRESTART = "prestart"
"""createRuntime's older name. Both together would run the hook twice."""

CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    "always": {"always": True},
    "floor": {"annotations": {r"^j10ce\.io/floor$": "^[a-z0-9]"}},
}
"""For which containers: all, or those with the annotation. hooks.d does not anchor regular expressions."""


def oci(python: Path, tree: Path, places: Places) -> dict[str, Any]:
    """The entry of a config.json: isolated (-I), without site-packages (-S)."""
    return {
        "path": str(python),
        "args": [python.name, "-I", "-S", "-c", ENTRY, str(tree), str(places.run), str(places.config)],
        "env": list(ENVIRONMENT),
        "timeout": TIMEOUT_SECONDS,
    }


def definition(entry: Mapping[str, Any], when: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The hooks.d file around an entry."""
    return {"version": "1.0.0", "hook": dict(entry), "when": dict(when), "stages": [stage]}


def text(document: Mapping[str, Any]) -> str:
    """The hooks.d file as it is written to disk."""
    return json.dumps(document, indent=2) + "\n"


def faults(content: str) -> Sequence[str]:
    """What is wrong with the text of a hooks.d file, by the 1.0.0 schema; empty: nothing."""
    try:
        document = json.loads(content)
    except ValueError as error:
        return (f"not JSON: {error}",)
    found = sorted(_validator().iter_errors(document), key=lambda error: error.json_path)
    return tuple(f"{error.json_path}: {error.message}" for error in found)


@cache
def _validator() -> Draft202012Validator:
    schema = json.loads(resources.files("hook.installation").joinpath("hooks.d.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
