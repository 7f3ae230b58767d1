"""Pods that would pass now are woken by an annotation (trap T21)."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import orjson

from adapters.api import PODS, APIError, NotFound, Unreachable
from adapters.kubernetes import decode
from extender.waking import AT_ONCE, Waker
from qos import keys
from tests.extender.accounts import Account, calls


def pending(api, make_pod, name, account):
    pod = decode.pod(orjson.dumps(api.put(PODS, make_pod(name))))
    account.pods[pod.uid] = pod
    return pod


async def test_t21_a_pod_that_would_pass_now_is_woken_by_an_annotation(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    account.waits = [pending(api, make_pod, "web", account)]
    await waker.run_once()
    first = api.get_object(PODS, "default", "web")["metadata"]["annotations"][keys.WAKE_ANNOTATION]
    account.waits = list(account.pods.values())
    clock.advance(2)
    await waker.run_once()
    second = api.get_object(PODS, "default", "web")["metadata"]["annotations"][keys.WAKE_ANNOTATION]
    assert first != second, "only a change wakes"


async def test_t21_waking_is_limited_and_nothing_is_lost(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    account.waits = [pending(api, make_pod, f"p{i}", account) for i in range(120)]
    await waker.run_once()
    assert len(calls(api, "patch")) == 50
    clock.advance(0.125)
    await waker.run_once()
    assert len(calls(api, "patch")) == 56
    for _ in range(20):
        clock.advance(0.125)
        await waker.run_once()
    assert set(calls(api, "patch")) == {f"p{i}" for i in range(120)}


async def test_t21_a_pod_is_woken_at_most_once_a_second(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    pod = pending(api, make_pod, "web", account)
    for _ in range(10):
        account.waits = [pod]
        await waker.run_once()
        clock.advance(0.1)
    assert len(calls(api, "patch")) == 1
    clock.advance(0.2)
    await waker.run_once()
    assert len(calls(api, "patch")) == 2


async def test_t21_looking_for_pods_to_wake_takes_a_twentieth_of_the_time_at_most(api, metrics, clock):
    account, looks = Account(), []

    def slow(now):
        looks.append(clock())
        clock.advance(0.5)
        yield []

    account.gather_waiting = slow
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    for _ in range(300):
        await waker.run_once()
        clock.advance(0.125)
    gaps = [late - early for early, late in itertools.pairwise(looks)]
    assert gaps
    assert all(10 <= gap < 12 for gap in gaps), gaps


async def test_t21_pods_that_are_bound_or_gone_are_left_alone(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    pod = pending(api, make_pod, "web", account)
    account.waits, account.pods = [pod], {pod.uid: replace(pod, node_name="n1")}
    await waker.run_once()
    account.waits, account.pods, account.removed = [pod], {}, {pod.uid}
    await waker.run_once()
    assert not calls(api, "patch")


async def test_t21_a_pod_that_no_watch_has_shown_yet_is_woken(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    account.waits, account.pods = [pending(api, make_pod, "web", account)], {}
    await waker.run_once()
    assert calls(api, "patch") == ["web"]


async def test_t21_waking_survives_what_the_api_server_says(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    account.waits = [pending(api, make_pod, f"p{i}", account) for i in range(3)]
    api.fail("patch", NotFound(404, "NotFound", "gone"))
    api.fail("patch", APIError(403, "Forbidden", "no"))
    api.fail("patch", Unreachable("cut"))
    await waker.run_once()
    clock.advance(2)
    await waker.run_once()
    text = metrics.exposition()
    for line in (b'{outcome="gone"} 1.0', b'{outcome="failed"} 2.0', b'{outcome="woken"} 1.0'):
        assert b"j10ce_wakes_total" + line in text


async def test_t21_a_slow_api_server_is_asked_to_wake_several_pods_at_once(api, metrics, clock, make_pod):
    """Each answer of 0.2 s waited for, a thousand pods were woken in 200 s."""
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, wall=clock, timer=clock)
    account.waits = [pending(api, make_pod, f"p{i}", account) for i in range(20)]
    gate = api.hang("patch", times=AT_ONCE)
    run = asyncio.create_task(waker.run_once())
    for _ in range(100):
        await asyncio.sleep(0)
    assert calls(api, "patch") == [f"p{i}" for i in range(AT_ONCE)]
    gate.set()
    await run
    assert calls(api, "patch") == [f"p{i}" for i in range(20)]
