"""The hook as installed below a folder: how runtimes learn of it, what it reads, what it leaves."""

from __future__ import annotations

import compileall
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel import cache

Entries = Sequence[tuple[int, str, str, str]]

PATIENT_SECONDS = 60
"""When the runtime kills a patient hook: on a node after 2."""
_BUDGET_MS = 500 * PATIENT_SECONDS
_PATIENCE = {
    "hook/config.py": (b"\nBUDGET_MS = 200\n", b"\nBUDGET_MS = %d\n" % _BUDGET_MS),
    "hook/process.py": (b"\nKILLED_AFTER = 2.0\n", b"\nKILLED_AFTER = %d.0\n" % PATIENT_SECONDS),
}
_START = f"""\
import sys
sys.path.insert(0, sys.argv[1])
from hook import boot, config, process
config.LARGEST_BUDGET_MS, process.KILLED_AFTER = {_BUDGET_MS}, {PATIENT_SECONDS}.0
boot.start()
"""
"""As hook/installation/entry.py, with a patient hook."""


@dataclass(frozen=True, slots=True)
class InstalledHook:
    """root: the folder that is its `/`."""

    root: Path

    @property
    def run(self) -> Path:
        """Its settings, markers and lock."""
        return self.root / "run" / "j10ce"

    @property
    def config(self) -> Path:
        """What the administrator decides."""
        return self.root / "etc" / "j10ce" / "hook.conf"

    @property
    def hooks_dir(self) -> Path:
        """For podman's --hooks-dir and NRI's hook-injector."""
        return self.root / "usr" / "share" / "containers" / "oci" / "hooks.d"

    @property
    def base_spec(self) -> Path:
        """For containerd's base_runtime_spec; `j10ce hook install --containerd` writes it."""
        return self.root / "etc" / "containerd" / "j10ce-base-spec.json"

    @property
    def entry(self) -> dict[str, Any]:
        """The hook as a config.json takes it."""
        (file,) = self.hooks_dir.glob("*.json")
        found: dict[str, Any] = json.loads(file.read_text())["hook"]
        return found

    def pod(self, uid: str, containers: Mapping[str, Entries]) -> None:
        """Write the settings of a pod's containers."""
        self._write("pods", uid, containers)

    def floor(self, name: str, entries: Entries, parent: str = "") -> None:
        """Write a named floor, for containers outside Kubernetes; parent: of their cgroups."""
        self._write("floors", name, {cache.ANY: entries}, parent)

    def default(self, qos: str, entries: Entries) -> None:
        """Write what a QoS class gets on a miss."""
        self._write("defaults", qos, {cache.ANY: entries})

    def fail(self, way: str) -> None:
        """Write the administrator's choice: open or closed."""
        self.configure(f"fail {way}\n")

    def configure(self, settings: str) -> None:
        """All that the administrator decides."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(settings)
        self.config.chmod(0o600)

    def missed(self) -> dict[str, str]:
        """Markers: container id -> what it says."""
        texts = [file.read_text() for file in (self.run / "missed").glob("*")]
        return {text.partition("id\t")[2].partition("\n")[0]: text for text in texts}

    def clear(self) -> None:
        """Nothing to read, nothing left, and it fails open."""
        shutil.rmtree(self.run, ignore_errors=True)
        self.config.unlink(missing_ok=True)

    def _write(self, folder: str, key: str, containers: Mapping[str, Entries], parent: str = "") -> None:
        (self.run / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = {name: list(entries) for name, entries in containers.items()}
        cache.write(str(self.run / folder), key, 0, settings, parent)


def patient(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """The hook's sources, by path, with half a minute for its work, not 0.2 s, and nothing else changed.

    On a machine that stands still for a second no hook ends in time, whatever a test is about.
    """
    changed = dict(sources)
    for path, (impatient, line) in _PATIENCE.items():
        before, _, after = sources[path].partition(impatient)
        assert after, f"{path} has no line{impatient.decode()}"
        changed[path] = before + line + after
    return changed


def from_sources(root: Path, sources: Path, python: Path = Path("/usr/bin/python3")) -> InstalledHook:
    """The hook run from its sources, with half a minute for its work: the test VM has no j10ce, is slow, and
    its clock goes on while its host has no time for it.

    They are compiled now, as an installation does: emulated, compiling them takes longer than all else.
    """
    for package in ("kernel", "hook"):
        compileall.compile_dir(sources / package, quiet=1)
    hook = InstalledHook(root)
    hook.hooks_dir.mkdir(parents=True)
    args = [python.name, "-I", "-S", "-c", _START, str(sources), str(hook.run), str(hook.config)]
    entry = {"path": str(python), "args": args, "env": ["PATH=/usr/bin:/bin"], "timeout": PATIENT_SECONDS}
    document = {"version": "1.0.0", "hook": entry, "when": {"always": True}, "stages": ["createRuntime"]}
    (hook.hooks_dir / "j10ce.json").write_text(json.dumps(document))
    hook.configure(f"budget-ms {_BUDGET_MS}\n")
    return hook
