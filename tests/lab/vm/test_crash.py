"""Real guests that do not come to their end: a kernel panic, and a machine that hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.vm import image, payload
from lab.vm.machine import Machine, Patience
from lab.vm.recipe import Image, VmError
from tests.waiting import until

pytestmark = pytest.mark.kernel


def silent(_what: str, _done: int, _total: int) -> None: ...


@pytest.fixture(scope="module")
def prepared() -> Image:
    return image.provide(os.environ, silent)


def guest(prepared: Image, folder: Path, script: str, patience: Patience | None = None) -> Machine:
    payload.write(folder / "payload.tar", {payload.COMMAND: script}, {})
    return Machine(prepared, folder, folder / "payload.tar", patience)


def test_a_panic_is_told_with_the_consoles_last_lines(prepared: Image, tmp_path: Path) -> None:
    with (
        guest(prepared, tmp_path, "echo c >/proc/sysrq-trigger\n") as machine,
        pytest.raises(VmError, match=r"ended without results: it crashed[\s\S]*sysrq triggered crash"),
    ):
        machine.results()


@pytest.mark.full
def test_a_hang_is_told_and_ended(prepared: Image, tmp_path: Path) -> None:
    script = "echo the guest hangs now >/dev/console; exec sleep 600\n"
    with guest(prepared, tmp_path, script, Patience(silence=5.0)) as machine:
        until(lambda: "hangs now" in machine.console.read_text(errors="replace"), "it hangs", seconds=240)
        with pytest.raises(VmError, match=r"nothing for 5 s, and was killed[\s\S]*the guest hangs now"):
            machine.results()
