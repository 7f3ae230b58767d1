"""`j10ce node restore`: the whole tree is as it was before an agent came, and our files are gone."""

# ruff: noqa: ASYNC240 - a test may wait for its files
from __future__ import annotations

import asyncio
import shutil
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapters.api import NODES
from adapters.memory import MemoryAPI
from agent.config import AGENT_LOCK
from agent.enforcement.originals import BAD, NAME, Originals, Record
from agent.enforcement.places import Place
from agent.nri.instance import only_instance
from agent.process import restore_and_stay
from agent.restoring import restore
from cli.app import app
from kernel import facts
from kernel.files import Group
from lab import ports
from qos import keys
from tests.agent.plain_node import PATH, PlainNode
from tests.waiting import until


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    return PlainNode(tmp_path, monkeypatch)


def put_back(node: PlainNode):
    config = node.config
    return restore(facts.mounts(config.proc), config.run, config.state, config.proc)


def files(node: PlainNode) -> dict[str, str]:
    """Every kernel file; that a folder was made and removed for a trial is nothing."""
    return {name: text for name, text in node.tree().items() if not text.isdecimal() or "." in name}


async def test_the_whole_tree_is_as_it_was(node: PlainNode) -> None:
    before = files(node)
    async with node.agent() as agent:
        await agent._probe()
    assert files(node) != before
    done = put_back(node)
    assert done.files > 3
    assert done.left == ()
    assert files(node) == before
    assert not (node.folder / "run").exists()
    assert not (node.folder / "state").exists()
    assert put_back(node).files == 0, "a second time there is nothing to do"


async def test_what_others_wrote_meanwhile_is_theirs(node: PlainNode) -> None:
    async with node.agent():
        pass
    node.fake.write(f"cgroup/unified{PATH}/cpu.weight", "77\n")
    assert put_back(node).left == ()
    assert node.read(PATH, "cpu.weight") == "77"


async def test_what_is_refused_is_said_and_costs_the_others_nothing(node: PlainNode) -> None:
    before = files(node)
    async with node.agent():
        pass
    weight = Path(f"{node.fake.root}/cgroup/unified{PATH}/cpu.weight")
    ours = weight.read_text()
    weight.unlink()
    weight.symlink_to("/dev/null")
    done = put_back(node)
    assert any("cpu.weight" in one and PATH in one for one in done.left)
    assert (node.folder / "run" / NAME).exists(), "to try again"
    weight.unlink()
    weight.write_text(ours)
    assert put_back(node).left == ()
    assert files(node) == before


def test_an_original_that_nobody_knows_is_said(node: PlainNode) -> None:
    Originals(node.config.run).note({Place(PATH, "cpu.weight"): Record("4", None)})
    assert put_back(node).left == (f"{PATH}/cpu.weight: what was there before is not known",)


@pytest.mark.parametrize("another", [False, True])
async def test_what_an_agent_noted_and_was_killed_before_it_wrote_is_ours(
    node: PlainNode, another: bool
) -> None:
    before = files(node)
    async with node.agent():
        pass
    assert files(node) != before
    originals = Originals(node.config.run)
    for place in [place for path in originals.paths() for place in originals.at(path)]:
        record = originals.record(place)
        assert record is not None
        originals.note({place: record._replace(written="99")})
    if another:
        async with node.agent():
            pass
    assert put_back(node).left == ()
    assert files(node) == before


class Killed(BaseException):
    """Nothing after it is done."""


async def test_killed_before_any_write_the_next_one_puts_everything_back(
    node: PlainNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(node)
    async with node.agent():
        pass
    saved, writes, really = tmp_path / "saved", [0], Group.write
    folders = ("node", "run", "state")
    for name in folders:
        shutil.copytree(node.folder / name, saved / name)

    def write(self: Group, file: str, value: str) -> None:
        writes[0] -= 1
        if not writes[0]:
            raise Killed
        really(self, file, value)

    monkeypatch.setattr(Group, "write", write)
    for number in range(1, 20):
        for name in folders:
            shutil.rmtree(node.folder / name, ignore_errors=True)
            shutil.copytree(saved / name, node.folder / name)
        writes[0] = number
        try:
            put_back(node)
            break
        except Killed:
            assert put_back(node).left == ()
        assert files(node) == before, f"killed before write {number}"
    assert number > 3


@pytest.mark.parametrize(
    ("old", "new"), [(b"j10ce", b"J10ce"), (b"/kubepods", b".kubepods"), (b"weight", b"\xffeight")]
)
async def test_a_damaged_journal_is_said_as_often_as_one_asks(
    node: PlainNode, old: bytes, new: bytes
) -> None:
    before = files(node)
    async with node.agent():
        pass
    journal = node.folder / "run" / NAME
    journal.write_bytes(journal.read_bytes().replace(old, new, 1))
    for _ in range(2):
        done = put_back(node)
        assert files(node) != before
        assert [one.partition(" ")[0] for one in done.left] == [f"{node.folder}/run/{BAD}"]
    (node.folder / "run" / BAD).unlink()
    assert put_back(node).left == ()


async def test_an_agent_that_went_on_with_a_damaged_journal_hides_nothing(node: PlainNode) -> None:
    async with node.agent():
        pass
    journal = node.folder / "run" / NAME
    journal.write_bytes(journal.read_bytes().replace(b"/kubepods", b".kubepods", 1))
    async with node.agent():
        pass
    assert any(BAD in one for one in put_back(node).left)


def test_what_the_hook_noted_is_put_back_where_no_agent_came(node: PlainNode) -> None:
    folder = node.config.run / "found"
    folder.mkdir(mode=0o700)
    note = folder / PATH.rpartition("pod")[2]
    note.write_text(f"{PATH}\tcpu.weight\t3\n")
    note.chmod(0o600)
    assert put_back(node).files == 1
    assert node.read(PATH, "cpu.weight") == "3"
    assert not note.exists()


def test_files_of_others_stay(node: PlainNode) -> None:
    mine = node.config.state / "notes.txt"
    mine.write_text("keep me")
    put_back(node)
    assert mine.exists()


async def test_not_while_an_agent_runs(node: PlainNode) -> None:
    run, state = node.config.run, node.config.state
    async with only_instance(run / AGENT_LOCK):
        words = ["node", "restore", "--run", str(run), "--state", str(state)]
        done = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert done.exit_code == 1
    assert "an agent runs here" in done.output


async def test_an_agent_in_a_pod_waits_for_the_one_before_and_is_ready_when_it_is_done(
    node: PlainNode,
) -> None:
    before, stop = files(node), asyncio.Event()
    async with node.agent():
        pass
    config = replace(node.config, node="n0", address=("127.0.0.1", ports.reserve(node.folder)[0]))
    url = f"http://127.0.0.1:{config.address[1]}/readyz"
    api = MemoryAPI()
    ours = {keys.EGRESS_BANDWIDTH: "1G", keys.INGRESS_BANDWIDTH: "1G"}
    status = {"capacity": ours | {"cpu": "4"}, "allocatable": ours}
    api.put(NODES, {"metadata": {"name": "n0"}, "status": status})
    api.fail("get", resource=NODES)

    def ready() -> int:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    async with only_instance(config.run / AGENT_LOCK):
        work = asyncio.create_task(restore_and_stay(config, api, stop))
        await asyncio.to_thread(until, lambda: ready() == 503, "it answers, and waits")
        assert files(node) != before
    await asyncio.to_thread(until, lambda: ready() == 200, "everything is put back")
    assert files(node) == before
    assert api.get_object(NODES, "", "n0")["status"] == {"capacity": {"cpu": "4"}, "allocatable": {}}
    stop.set()
    await work
