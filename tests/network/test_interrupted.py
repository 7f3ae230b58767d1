"""A round that fails at one of its calls, or an agent killed there: the next brings all to what is wanted.

Calls are answers of rtnetlink, of bpf(2), and the file of originals. Each is refused in turn, or done and
then said to have failed, and the agent goes on, or ends and another begins.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from adapters import atomic_file
from agent.network import probes
from agent.network.bpf import links, maps, pins, programs
from agent.network.bpf.system import BpfError
from agent.network.ladder import Choice, Means, choose
from agent.network.leaving import leave, remaining
from agent.network.namespaces import inside
from agent.network.netlink import Netlink
from qos.network.wanted import Band, Bounds, PodTraffic
from tests.network.node import bpf_file_system, node
from tests.network.test_shaping import MEGABIT, Shaper, shaping_node, traffic

_MEANS = (Means.HTB_TCX, Means.HTB_CLSACT, Means.HTB_U32)
_ROUNDS = 3
"""After one that failed everything is as wanted after so many, the last of which finds nothing to do."""


class Killed(BaseException):
    """What the agent cannot catch."""


@dataclass
class Faults:
    """The call `at` goes wrong; all are counted."""

    kills: bool
    done: bool
    at: int = 0
    count: int = 0
    what: str = ""

    def around(self, what: str, work: Any) -> Any:
        """The call; refused when it is its turn, or done without an answer."""
        self.count += 1
        if self.count != self.at:
            return work()
        self.what = what
        if self.done:
            work()
        if self.kills:
            raise Killed(what)
        raise BpfError(errno.ENOMEM, what) if what.startswith("bpf") else OSError(errno.ENOBUFS, what)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Between the agent and its kernel."""
        for module in (links, maps, pins, programs):
            patch.setattr(module, "call", self._bpf(module.call))
        write = atomic_file.write
        patch.setattr(
            atomic_file, "write", lambda file, data: self.around("write", lambda: write(file, data))
        )
        opened = Netlink.__init__

        def opens(netlink: Netlink) -> None:
            opened(netlink)
            netlink._socket = _Socket(netlink._socket, self)

        patch.setattr(Netlink, "__init__", opens)

    def _bpf(self, call: Any) -> Any:
        def faulty(command: Any, attributes: Any, what: str) -> Any:
            return self.around(f"bpf {command.name}", lambda: call(command, attributes, what))

        return faulty


class _Socket:
    """Of rtnetlink."""

    def __init__(self, socket: Any, faults: Faults) -> None:
        self._socket, self._faults = socket, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def send(self, data: bytes) -> int:
        sent: int = self._faults.around("send", lambda: self._socket.send(data))
        return sent

    def recv(self, size: int) -> bytes:
        got: bytes = self._faults.around("recv", lambda: self._socket.recv(size))
        return got


@dataclass
class Play:
    """One node, on which the same two rounds are played again and again, with one fault in the second."""

    shaper: Shaper
    faults: Faults

    def __post_init__(self) -> None:
        one, two, three = (self.shaper.node.pod() for _ in range(3))
        limited = Bounds(limit=3 * MEGABIT)
        self.first = [
            traffic("one", one, egress=Bounds(10 * MEGABIT, 50 * MEGABIT), ingress=limited),
            traffic("two", two, egress=Bounds(limit=5 * MEGABIT)),
        ]
        others = traffic("three", three, egress=Bounds(3 * MEGABIT, 9 * MEGABIT))
        self.second = [
            traffic("two", two, egress=Bounds(2 * MEGABIT, 7 * MEGABIT), ingress=limited),
            replace(others, band=Band.L2),
        ]

    def undisturbed(self) -> tuple[int, dict[str, Any]]:
        """How many calls the second round makes, and what is there after it."""
        calls = self._interrupted(at=0)
        shown = self._shown()
        self._leave()
        return calls, shown

    def at(self, call: int) -> tuple[str, dict[str, Any]]:
        """What went wrong there, and what is there after the rounds that follow."""
        self._interrupted(at=call)
        shown = self._shown()
        self._leave()
        return self.faults.what, shown

    def _interrupted(self, at: int) -> int:
        shaper, faults = self.shaper, self.faults
        shaping = shaper.start()
        shaper.settle(shaping, *self.first)
        known = shaper.before
        faults.count, faults.at, faults.what = 0, at, ""
        try:
            shaper.settle(shaping, *self.second)
        except (Killed, OSError):
            shaper.before = known  # the round came to no end
        calls, faults.at = faults.count, 0
        if faults.kills:
            shaping.close()
            shaping = shaper.start()
            shaper.recover(shaping, *self.second)
        self._settled(shaping, self.second)
        shaping.close()
        return calls

    def _settled(self, shaping: Any, pods: list[PodTraffic]) -> None:
        for _ in range(_ROUNDS):
            done = self.shaper.settle(shaping, *pods)
            assert not done.hung_again, f"{self.faults.what}: taken for another's work"
            if not done.changes:
                assert (done.unshaped, done.unclassified) == ({}, ""), self.faults.what
                return
        pytest.fail(f"{self.faults.what}: {done} after {_ROUNDS} rounds")

    def _leave(self) -> None:
        """As `j10ce network uninstall`."""
        run, root = self.shaper.run, self.shaper.bpf_root

        def leaves() -> tuple[list[str], list[str]]:
            return leave(run, root, unnoted=True), remaining(root)

        assert inside(Path("/run/netns") / self.shaper.node.name, leaves) == ([], []), self.faults.what
        self.shaper.before = type(self.shaper.before)()

    def _shown(self) -> dict[str, Any]:
        """By iproute2, with pods' names in place of the numbers of their classes; lines in order."""
        names = {f"10ce:{one.minor:x}": uid for uid, one in self.shaper.before.standing.items()}
        shown = {}
        for what, text in self.shaper.node.everything().items():
            lines = text.splitlines() if isinstance(text, str) else map(json.dumps, text)
            shown[what] = sorted(_comparable(one, names) for one in lines)
        return shown


def _comparable(line: str, names: dict[str, str]) -> str:
    """Without what the kernel numbers anew each time: programs, and qdiscs that nobody gave a handle."""
    line = re.sub(r" id \d+|leaf \w+: |\"handle\": \"(?!10ce:|ffff:)\w+:\"", "", line)
    return re.sub(r"10ce:[0-9a-f]+", lambda found: names.get(found[0], found[0]), line)


@pytest.fixture(name="play", scope="module", params=_MEANS, ids=[one.name for one in _MEANS])
def _play(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("interrupted")
    found = choose(probes.probe())
    choices = replace(found, sending=Choice(request.param))
    with (
        node() as here,
        bpf_file_system(folder) as root,
        shaping_node(here, folder, root, choices) as shaper,
        pytest.MonkeyPatch.context() as patch,
    ):
        faults = Faults(kills=False, done=False)
        faults.install(patch)
        yield Play(shaper, faults)


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.full)], ids=["some", "all"])
@pytest.mark.parametrize("done", [False, True], ids=["refused", "done"])
@pytest.mark.parametrize("kills", [False, True], ids=["fails", "killed"])
def test_after_a_fault_at_any_call_everything_is_as_wanted(
    play: Play, kills: bool, done: bool, step: int
) -> None:
    play.faults.kills, play.faults.done = kills, done
    calls, wanted = play.undisturbed()
    assert calls > 20
    for call in range(1 + (2 * kills + done) % step, calls + 1, step):
        what, shown = play.at(call)
        assert what, f"call {call} of {calls} was not reached"
        assert shown == wanted, f"after {what}, call {call} of {calls}"
