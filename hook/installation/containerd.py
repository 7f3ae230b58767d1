"""containerd's two ways to a hook: a base runtime spec for its CRI plugin, or NRI's hook-injector.

The hook-injector (https://github.com/containerd/nri, plugins/hook-injector) reads both hooks.d folders and
adds what matches to each container that CRI creates. The base spec needs no plugin, but a line in
containerd's configuration and a restart.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hook.installation import daemon
from hook.installation.daemon import Configuration
from hook.installation.errors import InstallationError
from hook.installation.machine import command_lines
from hook.installation.places import Places

CONFIGURATION: Final = "/etc/containerd"
INJECTOR: Final = "hook-injector"
PLUGINS: Final = "/opt/nri/plugins"
_DROPPED_BY_CRI: Final = ("rlimits", "apparmorProfile", "seccomp")
_SECONDS: Final = 30

_SECTION_1 = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]"
_SECTION_2 = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]"
_SNIPPET = """\
{section}
  runtime_type = 'io.containerd.runc.v2'
  base_runtime_spec = '{path}'
  # lets a pod ask not to start without its settings; never '*' here
  pod_annotations = ['j10ce.io/hook-fail']
"""


def base_spec(hook: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """containerd's default spec, as `ctr oci spec` prints it, with the hook. Raises InstallationError."""
    ctr = shutil.which("ctr") or shutil.which("ctr", path="/usr/local/bin:/usr/bin")
    if ctr is None:
        raise InstallationError(
            "ctr is not on PATH: --containerd takes containerd's default spec from `ctr oci spec`"
        )
    try:
        done = subprocess.run(
            [ctr, "oci", "spec"], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        spec = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InstallationError(f"`{ctr} oci spec` gave no spec: {error}") from error
    return with_hook(_as_cri_has_it(spec), hook, stage)


def _as_cri_has_it(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Without what CRI drops of its own default but keeps of a base spec: at most 1024 open files, say."""
    parts = {
        part: {key: value for key, value in spec[part].items() if key not in _DROPPED_BY_CRI}
        for part in ("process", "linux")
        if part in spec
    }
    return {**spec, **parts}


def with_hook(spec: Mapping[str, Any], hook: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """A runtime spec with the hook after those it has."""
    hooks = dict(spec.get("hooks") or {})
    hooks[stage] = [*hooks.get(stage, ()), dict(hook)]
    return {**spec, "hooks": hooks}


def snippet(places: Places, version: tuple[int, ...]) -> str:
    """What goes into containerd's configuration; version: containerd's, () where unknown: taken as 2."""
    section = _SECTION_1 if version and version[0] == 1 else _SECTION_2
    return _SNIPPET.format(section=section, path=places.base_spec)


def users_of_base_spec(places: Places, running: Iterable[Configuration]) -> list[str]:
    """Which configurations of containerd name our base spec: it does not start without that then.

    running: those of the containerds that run, wherever they are; besides, all files in the usual place.
    """
    word = str(places.base_spec)
    folder = places.below(CONFIGURATION)
    files = sorted(folder.rglob("*.toml")) if folder.is_dir() else []
    named = [str(path) for path in files if _names(_text(path), word)]
    return named + [one.source for one in running if _names(one.text, word)]


def refuse_if_used(places: Places) -> None:
    """InstallationError while a configuration of containerd needs our base spec."""
    named = users_of_base_spec(places, daemon.configurations(daemon.running()))
    if named:
        raise InstallationError(
            f"{named[0]} names {places.base_spec}, without which containerd does not start: take that line "
            f"out, restart containerd, and try again. Nothing was changed"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _names(text: str, word: str) -> bool:
    return any(word in line.partition("#")[0] for line in text.splitlines())


def by_nri(places: Places, running: Sequence[Configuration]) -> tuple[bool, str] | None:
    """What is known of NRI's hook-injector: whether it seems to be in use, and why; None: nothing of it."""
    there, runs = plugins(places), _running(words for _, words in command_lines())
    if not there and not runs:
        return None
    text = f"hook-injector: {', '.join(there + runs)}"
    on = [one.nri_is_on for one in running]
    if not on:
        return False, f"{text}; no running containerd could be asked whether it uses it"
    if False in on:
        return False, f"{text}; NRI is off in {running[on.index(False)].source}: that one does not use it"
    if not runs:
        return False, f"{text}; it is not running: containerd starts it at its own start, if it is executable"
    if None in on:
        return False, f"{text}; {running[on.index(None)].source} does not say whether NRI is on"
    return True, f"{text}; NRI is on. Whether it has registered with containerd cannot be seen from here"


def plugins(places: Places) -> list[str]:
    """hook-injectors among the plugins that containerd starts."""
    folder = places.below(PLUGINS)
    return [str(path) for path in sorted(folder.glob(f"*{INJECTOR}"))] if folder.is_dir() else []


def _running(command_line: Iterable[list[bytes]]) -> list[str]:
    ours = (words[0].decode(errors="replace") for words in command_line)
    return sorted({f"{word} (running)" for word in ours if word.endswith(INJECTOR)})
