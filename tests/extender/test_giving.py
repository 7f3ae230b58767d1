"""Calls by which an owner gets a place are made again; but not once nobody wants what they do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from adapters.api import PODS, APIError, Conflict
from adapters.memory import MemoryAPI
from extender import repeated
from extender.giving import Giving, Stays
from extender.standing import Standing
from qos.cluster.objects import Pod
from qos.cluster.placeholders import Placeholder


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> MemoryAPI:
    monkeypatch.setattr(repeated, "RETRY_SECONDS", 0.0)
    return MemoryAPI()


OWNER = Pod("u", "default", "checkout", {})


def gives(api: MemoryAPI, standing: Standing, held: int = 0) -> Giving:
    return Giving(api, standing, lambda _: {"default/a": held}, "holds")


def waiting(api: MemoryAPI, standing: Standing) -> Placeholder:
    """A placeholder that is not bound yet."""
    metadata = {"name": "hold-1", "namespace": "holds"}
    made = api.put(PODS, {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 0}})
    uid = made["metadata"]["uid"]
    one = Placeholder(uid, "hold-1", "default/a", "form", "n0", bound=False, priority=1)
    standing.put(one)
    return one


@pytest.fixture
def standing() -> Standing:
    return Standing("holds", lambda: None, lambda: 0.0)


async def test_a_placeholder_stays_once_its_owner_is_gone(api: MemoryAPI, standing: Standing) -> None:
    one, there = waiting(api, standing), [True, False]
    api.fail("delete")
    with pytest.raises(Stays):
        await gives(api, standing).let_go(one, lambda: there.pop(0))
    assert [verb for verb, *_ in api.calls] == ["delete"]
    assert api.objects(PODS)


async def test_one_that_waited_stays_once_it_is_bound(api: MemoryAPI, standing: Standing) -> None:
    one = waiting(api, standing)
    api.fail("delete")
    clearing = asyncio.create_task(gives(api, standing).clear("n0", OWNER, comes=True))
    await asyncio.sleep(0)  # it has begun,
    await asyncio.sleep(0)  # and sends the first DELETE
    assert api.calls
    standing.put(replace(one, bound=True))
    await clearing
    assert len(api.calls) == 1
    assert standing.of("default/a") == [replace(one, bound=True)]


@pytest.mark.parametrize("lost", [False, True])
async def test_one_whose_delete_meets_a_conflict_is_there_until_the_watch_says_otherwise(
    api: MemoryAPI, standing: Standing, lost: bool
) -> None:
    one = waiting(api, standing)
    if lost:
        api.fail("delete")
    api.fail("delete", Conflict(409, "Conflict", "another one"))
    await gives(api, standing).clear("n0", OWNER, comes=True)
    assert standing.of("default/a") == [one]
    assert standing.asking("n0") == [one]


@pytest.mark.parametrize(
    ("priority", "held", "comes", "steps"),
    [
        (0, 0, True, True),
        (0, 0, False, False),  # the owner waits for its predecessor's end
        (0, 1, True, False),  # there is room for both
        (-1, 0, True, False),  # the owner does not see it
    ],
)
async def test_who_stands_by_steps_aside_where_an_owner_would_not_fit_beside_it(
    api: MemoryAPI, standing: Standing, priority: int, held: int, comes: bool, steps: bool
) -> None:
    one = replace(waiting(api, standing), nominated=True, priority=priority)
    standing.put(one)
    await gives(api, standing, held).clear("n0", OWNER, comes=comes)
    assert [verb for verb, *_ in api.calls] == (["patch"] if steps else [])
    assert standing.asking("n0") == [replace(one, nominated=not steps)]
    assert standing.aside == ({one.uid} if steps else set())


@pytest.mark.parametrize(
    ("priority", "own", "steps"), [(0, False, True), (-1, False, False), (0, True, False)]
)
async def test_one_that_is_about_to_go_steps_aside_as_well(
    api: MemoryAPI, standing: Standing, priority: int, own: bool, steps: bool
) -> None:
    """It kept the owner out until its DELETE had arrived; not so the one whose place the owner gets."""
    one = replace(waiting(api, standing), nominated=True, priority=priority)
    standing.put(one)
    standing.give(one)
    await gives(api, standing).clear("n0", OWNER, comes=True, given=one if own else None)
    assert [verb for verb, *_ in api.calls] == (["patch"] if steps else [])


@pytest.mark.parametrize(("status", "calls"), [(403, 1), (503, 3)])
async def test_what_the_api_server_refuses_is_not_asked_at_once_again(
    api: MemoryAPI, standing: Standing, status: int, calls: int
) -> None:
    for _ in range(3):
        api.fail("patch", APIError(status, "", ""))
    with pytest.raises(APIError):
        await gives(api, standing).nominate(OWNER, "n0")
    assert len(api.calls) == calls
