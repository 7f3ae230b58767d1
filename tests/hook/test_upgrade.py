"""Containers start all the while the hook is installed, upgraded and removed: none of them fails."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from hook.installation import imports
from hook.installation.install import Wishes, install
from hook.installation.places import Places
from hook.installation.uninstall import uninstall
from kernel import cache
from lab.runtimes.installed_hook import patient

if TYPE_CHECKING:
    from conftest import Container, Containers

pytestmark = pytest.mark.runtime

UPGRADES = 5


class Runtime:
    """Reads the hooks.d file and runs what it says, again and again, as podman does for each container."""

    def __init__(self, definition: Path, container: Container, floor: list[cache.Entry]) -> None:
        self._definition = definition
        self._container = container
        self._floor = floor
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.started = 0
        self.uninstalling = False
        self.trees: set[str] = set()
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until this many more containers have started."""
        wanted = self.started + count
        while self.started < wanted and not self.failures and self._thread.is_alive():
            self._thread.join(0.005)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._start()
            except Exception as error:  # the test shall say so, not hang
                self.failures.append(repr(error))
                return

    def _start(self) -> None:
        _, _, file, value = self._floor[0]
        self._container.file(file).write_text("2")
        try:
            hook = json.loads(self._definition.read_text())["hook"]
        except FileNotFoundError:
            self.started += 1  # a container without a hook
            return
        state = self._container.state(annotations={"j10ce.io/floor": "web"})
        argv = [hook["path"], *hook["args"][1:]]
        done = subprocess.run(argv, input=state, capture_output=True, text=True, check=False, timeout=60)
        self.trees.add(hook["args"][5])
        self.started += 1
        # Its code, or a part of it, was removed between the reading of the definition and the start.
        gone = self.uninstalling and done.stderr.endswith(": it starts all the same\n")
        if done.returncode or not (gone or self._container.read(file) == value):
            self.failures.append(f"{done.returncode} {done.stderr} {hook['args'][5]}")


def test_upgrades_while_containers_start(
    tmp_path: Path, containers: Containers, floor: list[cache.Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path / "node")
    floors = places.run / "floors"
    floors.mkdir(parents=True, mode=0o700)
    file, value = floor[0][2], floor[0][3]
    cache.write(str(floors), "web", 0, {cache.ANY: [(0, "set", file, value)]})
    files = patient(imports.sources())
    container = containers.plain()
    with Runtime(places.definition, container, [(0, "set", file, value)]) as runtime:
        for number in range(UPGRADES):
            changed = files | {"hook/__init__.py": files["hook/__init__.py"] + f"# {number}\n".encode()}
            monkeypatch.setattr(imports, "sources", lambda changed=changed: changed)
            install(places, Wishes())
            runtime.wait_for(3)
        runtime.uninstalling = True
        uninstall(places)
        runtime.wait_for(3)
    assert runtime.failures == []
    assert len(runtime.trees) == UPGRADES
