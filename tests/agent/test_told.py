"""What the runtime was told, and what others want there: kept through restarts, learnt from what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.enforcement.foreign import Look
from agent.enforcement.found import Found
from agent.enforcement.index import FileIndex
from agent.enforcement.noting import Notes
from agent.enforcement.originals import Originals, Record
from agent.enforcement.places import Place
from agent.enforcement.writers import SYSTEMD
from agent.nri.records import Adjustment, LinuxResources
from agent.nri.rpc import NriError
from agent.state import ContainerKey, Running
from agent.telling import Telling
from agent.told import Told
from qos.plan.layout import conversion_of, kubelet_weight, runtime_weight, shares_for
from qos.plan.settings import SET, Plan, Setting

PATH = "/kubepods/pod1/c1"
KEY = ContainerKey("u1", "web")
RUNNING = Running(KEY, "c1", PATH, 7)
OLD = LinuxResources(cpu_shares=307, cpu_quota=20_000, cpu_period=100_000)
"""As kubelet asks for 300m."""


@pytest.mark.parametrize("convert", [kubelet_weight, runtime_weight])
def test_every_weight_has_its_shares(convert) -> None:
    for weight in range(1, 10_001):
        found = shares_for(weight, convert)
        assert convert(found) == weight
        assert found == 2 or convert(found - 1) < weight


def test_the_conversion_shows_where_the_two_differ() -> None:
    assert conversion_of(307, 12) is kubelet_weight
    assert conversion_of(307, 40) is runtime_weight
    assert conversion_of(2, 1) is None
    assert conversion_of(307, 39) is None


def plan(**files: str) -> Plan:
    return Plan(
        tuple(Setting(0, PATH, "", name.replace("_", "."), text, SET, "") for name, text in files.items())
    )


class Rig:
    """Telling by a plan that a test states, and a container whose weight it states."""

    def __init__(self, run: Path) -> None:
        self.run, self.plan, self.weight = run, plan(cpu_weight="500", memory_high="4096"), ""
        self.originals = Originals(run)
        self.again()

    def again(self) -> None:
        """As after a restart of the agent."""
        self.told = Told(self.run)
        self.telling = Telling(
            self.told,
            self.originals,
            lambda _: self.plan,
            lambda *_: self.weight,
            lambda *_: False,
            unified=True,
        )

    def tell(self, spec: LinuxResources, **asked: int) -> LinuxResources:
        """The spec that comes of it."""
        wished = LinuxResources(**asked)
        wanted = self.telling.adjustment(RUNNING, spec, wished)
        return _with(spec, wished, wanted or Adjustment())


def _with(spec: LinuxResources, *changes: LinuxResources) -> LinuxResources:
    unified = {file: text for one in (spec, *changes) for file, text in one.unified.items()}
    found = {}
    for name in ("cpu_shares", "cpu_quota", "cpu_period"):
        said = [getattr(one, name) for one in (spec, *changes)]
        found[name] = next((one for one in reversed(said) if one is not None), None)
    return LinuxResources(**found, unified=unified)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_what_others_want_comes_back(rig: Rig) -> None:
    spec = rig.tell(OLD)
    assert (spec.cpu_shares, spec.unified) == (shares_for(500, runtime_weight), {"memory.high": "4096"})
    rig.again()
    assert rig.told.to_take_back(PATH, spec) == {"cpu.weight": "307", "memory.high": "max"}
    rig.told.ended(PATH)
    assert Told(rig.run).paths() == frozenset()


def test_a_resize_is_what_others_want(rig: Rig) -> None:
    spec = rig.tell(rig.tell(OLD), cpu_shares=512)
    assert rig.told.to_take_back(PATH, spec)["cpu.weight"] == "512"
    again = rig.tell(spec)
    assert rig.told.to_take_back(PATH, again)["cpu.weight"] == "512", "told the same once more"


def test_a_resize_while_no_agent_was_there_stays(rig: Rig) -> None:
    spec = _with(rig.tell(OLD), LinuxResources(cpu_shares=600))
    rig.again()
    assert "cpu.weight" not in rig.told.to_take_back(PATH, spec)
    spec = rig.tell(spec)
    assert rig.told.to_take_back(PATH, spec)["cpu.weight"] == "600"


def test_what_cannot_be_said_is_named(rig: Rig) -> None:
    rig.plan = plan(cpuset_cpus="1")
    assert rig.told.to_take_back(PATH, _with(rig.tell(OLD))) == {}, "not at creation"
    assert rig.told.to_take_back(PATH, LinuxResources(cpus="1")) == {"cpuset.cpus": None}


def test_the_runtimes_way_is_learnt(rig: Rig) -> None:
    rig.weight = "12"
    rig.telling.learn(PATH, OLD, written=False)
    assert rig.telling.asked(OLD) == {"cpu.weight": "12", "cpu.max": "20000 100000"}
    assert rig.tell(OLD).cpu_shares == shares_for(500, kubelet_weight)


def test_what_we_told_shows_it_only_where_the_runtime_has_just_written(rig: Rig) -> None:
    spec, rig.weight = rig.tell(OLD), "307"
    rig.weight = str(kubelet_weight(spec.cpu_shares or 0))
    rig.telling.learn(PATH, spec, written=False)
    assert rig.telling.asked(OLD)["cpu.weight"] == "40"
    rig.telling.learn(PATH, spec, written=True)
    assert rig.telling.asked(OLD)["cpu.weight"] == "12"


def test_what_systemd_writes_of_ours_is_nobodys_wish(rig: Rig, tmp_path: Path) -> None:
    rig.tell(OLD)
    place = Place(PATH, "cpu.weight")
    notes = Notes(rig.originals, FileIndex(), Found(tmp_path), says_ours=rig.told.is_ours)
    rig.originals.note({place: Record("650", "40")})
    reloaded = Look("cpu.weight", "500", "650", "650", own=True, shared=False, writer=SYSTEMD)
    assert notes.after(place, reloaded) == Record("650", "40")
    theirs = reloaded._replace(have="77")
    assert notes.after(place, theirs) == Record("650", "77")


async def test_what_is_wanted_no_more_is_taken_back_from_the_runtime(rig: Rig) -> None:
    rig.tell(OLD)
    rig.plan = plan(memory_high="4096")
    asked: list[object] = []

    async def update(wanted: object) -> None:
        asked.append(wanted)

    for _ in range(2):
        await rig.telling.take_back([RUNNING], update)
    assert asked == [{"c1": Adjustment(cpu_shares=307)}]


async def test_what_the_runtime_refuses_is_left_to_a_restore(rig: Rig) -> None:
    rig.tell(OLD)
    rig.plan = plan()
    tries = []

    async def update(wanted: object) -> None:
        tries.append(wanted)
        raise NriError("no")

    for _ in range(2):
        await rig.telling.take_back([RUNNING], update)
    assert len(tries) == 1
    assert rig.told.paths() == {PATH}
