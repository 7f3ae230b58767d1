"""When this installation began is read until it is known, and nothing is judged by a guess."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from adapters.api import LEASES, PODS, POLICIES, APIError, Unreachable
from extender.config import ExtenderConfig
from extender.installation import installed_at
from qos import keys
from tests.extender.conftest import NOW

CONFIG = ExtenderConfig(identity="me")


def put_lease(api):
    api.put(LEASES, {"metadata": {"namespace": CONFIG.lease_namespace, "name": CONFIG.lease_name}})


async def test_it_is_when_the_lease_was_made(api, clock):
    put_lease(api)
    clock.advance(5_000)
    assert await installed_at(api, CONFIG) == NOW


@pytest.mark.parametrize("error", [APIError(403, "Forbidden", "no"), Unreachable("no answer")])
async def test_a_lease_that_cannot_be_read_tells_nothing(api, error):
    put_lease(api)
    api.fail("get", error)
    assert await installed_at(api, CONFIG) is None
    assert await installed_at(api, CONFIG) == NOW


async def test_a_lease_that_is_not_there_yet_tells_nothing(api):
    assert await installed_at(api, CONFIG) is None


async def test_an_earlier_breach_is_told_although_the_first_reads_failed(
    api, running, make_policy, make_pod, eventually, monkeypatch
):
    known, asked = [], []

    async def late(*_):
        asked.append(1)
        return known[0] if known else None

    def told():
        conditions = api.get_object(POLICIES, "default", "checkout").get("status", {}).get("conditions", ())
        return {one["reason"] for one in conditions if one["type"] == keys.GUARDED}

    monkeypatch.setattr("extender.program.installed_at", late)
    monkeypatch.setattr("extender.program.INSTALLATION_SECONDS", 0.01)
    monkeypatch.setattr("extender.program.STATUS_SECONDS", 0.01)
    api.put(POLICIES, make_policy())
    api.put(PODS, bound_without_us(make_pod))
    async with running(api) as program:
        await eventually(lambda: program.elector.is_leader and len(asked) > 5)
        assert not told(), "neither an alarm nor the end of one by a guess"
        known.append(0.0)
        await eventually(told)
        assert told() == {"ExtenderAway"}


def bound_without_us(make_pod):
    pod = make_pod("web", node="n1")
    since = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
    return pod
