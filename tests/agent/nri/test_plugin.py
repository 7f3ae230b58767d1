"""The plugin against the other side of the socket, played here: an old runtime, a new one, a broken one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nri import messages_pb2 as pb
from agent.nri.frames import DATA, PLUGIN, REQUEST, encode
from agent.nri.plugin import back_off
from agent.nri.protocol import pod
from agent.nri.records import Adjustment, NriPod
from agent.nri.rpc import NriError
from tests.agent.nri.runtime_side import APP, BOTH, POD, Rig, running

CREATE, UPDATE = 1 << 3, 1 << 7
OLD = CREATE | UPDATE | 1 << 0 | 1 << 2 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 10


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as made, made.listening():
        yield made


def updates(response: pb.SynchronizeResponse | pb.UpdateContainersRequest) -> Mapping[str, int]:
    return {one.container_id: one.linux.resources.cpu.shares.value for one in response.update}


async def test_it_registers_and_is_connected_once_synchronized(rig: Rig) -> None:
    runtime = await rig.connections.get()
    told = await runtime.registered()
    assert (told.plugin_name, told.plugin_idx) == ("j10ce", "50")
    await runtime.configured()
    assert not rig.plugin.connected
    await runtime.synchronized()
    await rig.until(lambda: rig.plugin.connected)
    assert rig.plugin.version == "containerd 2.3.5"
    assert rig.registry.get_sample_value("j10ce_agent_nri_connected") == 1


@pytest.mark.parametrize(
    ("version", "events"), [("v0.12.5", OLD | 1 << 12), ("", OLD), ("unknown", OLD), ("v0.6.1", OLD)]
)
async def test_it_subscribes_exactly_what_it_handles(rig: Rig, version: str, events: int) -> None:
    runtime = await rig.connections.get()
    await runtime.registered()
    assert await runtime.configured(version) == events


async def test_a_runtime_that_refuses_the_events_gets_fewer(rig: Rig) -> None:
    asked = []
    for _ in range(3):
        runtime = await rig.connections.get()
        await runtime.registered()
        asked.append(await runtime.configured())
        runtime.writer.close()
    assert asked == [OLD | 1 << 12, OLD, OLD | 1 << 12]


async def test_an_old_runtime_tells_by_state_change(rig: Rig) -> None:
    runtime = await rig.connected("")
    for event in (pb.RUN_POD_SANDBOX, pb.START_CONTAINER, pb.POST_UPDATE_CONTAINER, pb.REMOVE_CONTAINER):
        told = pb.StateChangeEvent(event=event, pod=POD, container=APP)
        assert await runtime.call("StateChange", told) == (0, b"")
    for event in (pb.STOP_POD_SANDBOX, pb.POST_CREATE_CONTAINER):  # not wanted
        assert await runtime.call("StateChange", pb.StateChangeEvent(event=event, pod=POD)) == (0, b"")
    assert rig.handler.names() == ["synchronize", "pod_started", "starting", "updated", "removed"]
    assert rig.handler.told[1] == ("pod_started", NriPod("s1", "u1", "shop", "web"))
    assert rig.handler.told[2][2].name == "app"
    assert rig.count("StartContainer", "empty") == 1


@pytest.mark.parametrize(
    ("types", "addresses", "own"),
    [
        (["pid", "network"], ["10.1.0.7", "fd00::7"], True),
        (["pid", "ipc"], [], False),
        (["pid", "ipc"], ["10.1.0.7"], True),  # its network is torn down already
        ([], [], None),
    ],
)
def test_the_network_of_a_sandbox(types: list[str], addresses: list[str], own: bool | None) -> None:
    namespaces = [pb.LinuxNamespace(type=one) for one in types]
    message = pb.PodSandbox(pid=7, ips=addresses, linux=pb.LinuxPodSandbox(namespaces=namespaces))
    told = pod(message)
    assert (told.pid, told.addresses, told.own_network) == (7, tuple(addresses), own)


async def test_a_new_one_by_a_method_each(rig: Rig) -> None:
    runtime = await rig.connected()
    for method in ("RunPodSandbox", "PostUpdatePodSandbox", "StartContainer", "PostUpdateContainer"):
        assert await runtime.call(method, BOTH) == (0, b"")
    for method in ("StopContainer", "RemoveContainer", "RemovePodSandbox", "Shutdown"):
        assert await runtime.call(method, BOTH) == (0, b"")
    told = ["pod_started", "pod_updated", "starting", "updated", "stopped", "removed", "pod_gone"]
    assert rig.handler.names() == ["synchronize", *told]


async def test_what_is_not_nris_is_unimplemented(rig: Rig) -> None:
    runtime = await rig.connected()
    assert (await runtime.call("Freeze"))[0] == 12
    assert (await runtime.call("Synchronize", service="nri.pkg.api.v2.Plugin"))[0] == 12
    assert await runtime.call("ValidateContainerAdjustment", BOTH) == (0, b"")  # a refusal would fail the pod
    assert rig.count("other", "unimplemented") == 2


async def test_a_request_that_is_none_is_refused(rig: Rig) -> None:
    runtime = await rig.connected()
    runtime.writer.write(encode(PLUGIN, 101, REQUEST, b"\xff\xff"))
    runtime.writer.write(encode(PLUGIN, 103, DATA, b"x"))
    runtime.writer.write(encode(PLUGIN, 104, REQUEST, b""))
    found = [await runtime.message() for _ in range(3)]
    codes = {one.stream: pb.Response.FromString(one.body or b"").status.code for one in found}
    assert codes == {101: 3, 103: 3, 104: 3}


async def test_creation_is_adjusted(rig: Rig) -> None:
    rig.handler.does["create"] = lambda: Adjustment(cpu_shares=777, cpu_period=9, cpus="0")
    runtime = await rig.connected()
    status, payload = await runtime.call("CreateContainer", BOTH)
    linux = pb.CreateContainerResponse.FromString(payload).adjust.linux
    assert (status, linux.resources.cpu.shares.value, linux.resources.cpu.period.value) == (0, 777, 9)
    assert (linux.resources.cpu.cpus, linux.resources.HasField("memory")) == ("", False)


async def test_an_update_is_answered_and_zero_asks_for_nothing(rig: Rig) -> None:
    rig.handler.does["update"] = lambda: Adjustment(cpu_shares=777, cpus="0")
    runtime = await rig.connected()
    request = pb.EventRequest(pod=POD, container=APP)
    request.linux_resources.cpu.quota.value = 0
    request.linux_resources.cpu.shares.value = 300
    _, payload = await runtime.call("UpdateContainer", request)
    (update,) = pb.UpdateContainerResponse.FromString(payload).update
    assert (update.container_id, update.linux.resources.cpu.shares.value) == ("c1", 777)
    asked = rig.handler.told[-1][3]
    assert (asked.cpu_shares, asked.cpu_quota) == (300, None)


@pytest.mark.parametrize("method", ["CreateContainer", "UpdateContainer", "StartContainer", "Synchronize"])
async def test_a_handler_that_fails_fails_nothing(
    rig: Rig, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = await rig.connected()
    names = {"CreateContainer": "create", "UpdateContainer": "update", "StartContainer": "starting"}
    rig.handler.does[names.get(method, "synchronize")] = lambda: 1 // 0
    assert await runtime.call(method, pb.SynchronizeRequest() if method == "Synchronize" else BOTH) == (
        0,
        b"",
    )
    assert rig.count(method, "failed") == 1
    assert f"event={method}" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_what_cannot_be_read_or_done_is_answered_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer costs the runtime its whole timeout, and us the connection; a refusal costs the container."""
    runtime = await rig.connected()
    monkeypatch.setattr(rig.handler, "starting", None, raising=False)
    assert await runtime.call("StartContainer", BOTH) == (0, b"")
    unreadable = pb.Status(code=1, message="\xff")
    assert await runtime.call("CreateContainer", unreadable) == (0, b"")
    assert rig.count("StartContainer", "failed") == rig.count("CreateContainer", "failed") == 1
    monkeypatch.setattr("agent.nri.events.subscription", None)
    assert (await runtime.call("Configure"))[0] == 13


async def test_a_handler_that_hangs_is_answered_for_and_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, budget=0.05) as rig, rig.listening():
        runtime = await rig.connected()
        rest: asyncio.Future[Adjustment] = asyncio.get_running_loop().create_future()
        rig.handler.does["update"] = lambda: rest
        assert await runtime.call("UpdateContainer", BOTH) == (0, b"")
        assert rig.count("UpdateContainer", "late") == 1
        runtime.writer.close()  # what it does is wanted all the same
        runtime = await rig.connected()
        await rig.until(lambda: rig.plugin.connected)
        rest.set_result(Adjustment(cpu_shares=777))
        runtime.update(await runtime.message())
        assert [updates(one) for one in runtime.asked] == [{"c1": 777}]


async def test_the_runtimes_timeout_bounds_the_budget(tmp_path: Path) -> None:
    async with running(tmp_path, budget=3600) as rig, rig.listening():
        runtime = await rig.connected(milliseconds=40)
        rig.handler.does["create"] = asyncio.get_running_loop().create_future
        assert await runtime.call("CreateContainer", BOTH) == (0, b"")
        assert rig.count("CreateContainer", "late") == 1
        total = rig.registry.get_sample_value("j10ce_agent_nri_request_seconds_sum")
        assert total is not None
        assert total < 10


async def test_synchronize_in_parts(rig: Rig) -> None:
    """The first parts are answered with `more` alone; what the spec says already is not asked for again."""
    rig.handler.does["synchronize"] = lambda: {
        "c1": Adjustment(cpu_shares=777),
        "c2": Adjustment(cpu_shares=888),
        "gone": Adjustment(cpu_shares=1),
    }
    has = pb.Container(id="c2", pod_sandbox_id="s1", name="side", state=3)
    has.linux.resources.cpu.shares.value = 888
    runtime = await rig.connections.get()
    await runtime.registered()
    await runtime.configured()
    first, last = await runtime.synchronized(
        pb.SynchronizeRequest(pods=[POD], containers=[APP], more=True),
        pb.SynchronizeRequest(containers=[has]),
    )
    assert (first.more, updates(first)) == (True, {})
    assert (last.more, updates(last)) == (False, {"c1": 777})
    ((_, pods, containers),) = rig.handler.told
    assert ([one.id for one in pods], [one.id for one in containers]) == (["s1"], ["c1", "c2"])


async def test_many_updates_follow_the_answer_a_few_at_a_time(rig: Rig) -> None:
    names = [f"c{number}" for number in range(11)]
    rig.handler.does["synchronize"] = lambda: {name: Adjustment(cpu_shares=777) for name in names}
    runtime = await rig.connections.get()
    await runtime.registered()
    await runtime.configured()
    told = pb.SynchronizeRequest(containers=[pb.Container(id=name) for name in names])
    (answer,) = await runtime.synchronized(told)
    while len(runtime.asked) < 2:
        runtime.update(await runtime.message())
    sizes = [len(answer.update), *(len(one.update) for one in runtime.asked)]
    assert sizes == [4, 4, 3]
    assert 0.5 in rig.pauses


async def test_updates_of_our_own(rig: Rig) -> None:
    with pytest.raises(NriError, match="no runtime is connected"):
        await rig.plugin.update({"c1": Adjustment(cpu_shares=777)})
    runtime = await rig.connected()
    await rig.until(lambda: rig.plugin.connected)
    wanted = {"c1": Adjustment(cpu_shares=777), "c2": Adjustment()}
    task = asyncio.create_task(rig.plugin.update(wanted))
    runtime.update(await runtime.message())
    await task
    assert [updates(one) for one in runtime.asked] == [{"c1": 777}]
    runtime.refuse = True
    task = asyncio.create_task(rig.plugin.update(wanted))
    runtime.update(await runtime.message())
    with pytest.raises(NriError, match="code 2: no such container"):
        await task


async def test_an_update_ends_with_its_connection(rig: Rig) -> None:
    runtime = await rig.connected()
    await rig.until(lambda: rig.plugin.connected)
    task = asyncio.create_task(rig.plugin.update({"c1": Adjustment(cpu_shares=777)}))
    await runtime.message()
    runtime.writer.close()
    with pytest.raises(NriError, match="closed the connection"):
        await task


async def test_long_messages_both_ways(rig: Rig) -> None:
    rig.handler.does["create"] = lambda: Adjustment(unified={"memory.low": "9" * 3_000_000})
    runtime = await rig.connected()
    request = pb.EventRequest(pod=POD, container=pb.Container(id="c1", annotations={"big": "x" * 3_900_000}))
    _, payload = await runtime.call("CreateContainer", request)
    answer = pb.CreateContainerResponse.FromString(payload)
    assert len(answer.adjust.linux.resources.unified["memory.low"]) == 3_000_000
    rig.handler.does["create"] = lambda: Adjustment(unified={"memory.low": "9" * 5_000_000})
    assert (await runtime.call("CreateContainer", request))[0] == 8


async def test_it_comes_back_whenever_there_is_a_runtime(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.until(lambda: len(rig.pauses) >= 8)
        assert all(0.05 <= one <= 2 for one in rig.pauses)
        assert rig.pauses[0] < 0.2
        assert max(rig.pauses[5:]) >= 1
        async with rig.listening():
            runtime = await rig.connected()
            await rig.until(lambda: rig.plugin.connected)
            runtime.writer.write(b"\xff" * 100)  # no frame
            runtime = await rig.connected()
            await rig.until(lambda: rig.plugin.connected)
            runtime.writer.close()
            await rig.until(lambda: not rig.plugin.connected)
        async with rig.listening():
            await rig.connected()
            await rig.until(lambda: rig.plugin.connected)
    assert rig.handler.names() == ["synchronize"] * 3


async def test_a_standby_does_not_even_connect(rig: Rig, tmp_path: Path) -> None:
    await rig.connected()
    async with running(tmp_path) as second:
        await second.until(lambda: len(second.pauses) >= 3)
        assert rig.connections.empty()
        assert set(second.pauses) == {0.5}


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_attempts_are_spread_and_bounded(failures: int, chance: float) -> None:
    assert 0.05 <= back_off(failures, chance) <= 2
    assert back_off(failures, 0) <= back_off(failures + 1, 0)
