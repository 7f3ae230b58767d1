"""The second port: what its OpenAPI document says is what it does."""

from __future__ import annotations

import threading

import httpx
import pytest
import schemathesis
from hypothesis import settings
from prometheus_client.parser import text_string_to_metric_families

from adapters.serving.readiness import Readiness
from extender.metrics import MOST_POLICIES, Metrics
from extender.rest import app
from extender.snapshots import Snapshot
from ledger.decisions import DemandReport, Mode, Unplaced

REPORTS = {
    "shop/b": DemandReport("shop/b", 3, 1, 0, (), (Unplaced(2, "Insufficient", "memory", 8 * 2**30),)),
    "default/a": DemandReport("default/a", 4, 1, 3, (("n2", 1), ("n1", 2)), at_risk=2),
}


class Looks:
    def __init__(self, reports):
        gauges = {"held/cpu": 6000, "held/memory": 5.0, "nodes": 2, "moves_total": 7}
        self.latest = Snapshot(reports, gauges)

    async def take(self):
        return self.latest


def service(looks=None):
    readiness = Readiness({}, lambda: 0.0)
    metrics, looks = Metrics(), looks or Looks(REPORTS)
    metrics.watch_ledger(lambda: looks.latest)
    return app(Mode.GUARD, looks, readiness, metrics), readiness, metrics


APP, READINESS, METRICS = service()
READINESS.open()
schema = schemathesis.openapi.from_asgi("/openapi.json", APP)


@schema.parametrize()
@settings(max_examples=10, deadline=None)
def test_the_document_is_true(case):
    case.call_and_validate()


def client_of(service) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://extender")


@pytest.fixture
async def client():
    async with client_of(APP) as found:
        yield found


async def test_every_path_is_documented(client):
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert set(paths) == {"/healthz", "/readyz", "/metrics", "/holds"}
    assert all(operation["description"] for path in paths.values() for operation in path.values())


async def test_t05_not_ready_until_every_list_has_synced():
    fresh, readiness, _ = service()
    async with client_of(fresh) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        readiness.open()
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        readiness.drain()
        assert (await client.get("/readyz")).json() == {"status": "shutting down"}
    assert not readiness.problem(), "verbs under way are answered while draining"


async def test_all_holds_are_listed(client):
    answer = (await client.get("/holds")).json()
    assert answer["mode"] == "Guard"
    assert [one["policy"] for one in answer["policies"]] == ["default/a", "shop/b"]
    first, second = answer["policies"]
    assert (first["atRisk"], second["atRisk"]) == (2, 0)
    assert first["holds"] == [{"nodeName": "n1", "slots": 2}, {"nodeName": "n2", "slots": 1}]
    assert second["unplaced"] == [
        {"count": 2, "reason": "Insufficient", "resource": "memory", "missing": "8Gi", "message": ""}
    ]
    only = (await client.get("/holds", params={"namespace": "shop"})).json()["policies"]
    assert [one["policy"] for one in only] == ["shop/b"]


class Seen(dict):
    """Reports that note in which thread they are read."""

    readers: set[int]

    def items(self):
        self.readers.add(threading.get_ident())
        return super().items()


class Asked(Looks):
    """Notes in which thread it is asked for them."""

    askers: set[int]

    async def take(self):
        self.askers.add(threading.get_ident())
        return await super().take()


@pytest.mark.parametrize("path", ["/holds", "/metrics"])
async def test_the_ledger_is_asked_on_the_loop_and_its_answer_rendered_beside_it(path):
    reports = Seen(REPORTS)
    looks = Asked(reports)
    looks.askers, reports.readers = set(), set()
    large, _, _ = service(looks)
    async with client_of(large) as client:
        assert (await client.get(path)).status_code == 200
    assert looks.askers == {threading.get_ident()}
    assert reports.readers
    assert threading.get_ident() not in reports.readers


def samples(text: str) -> dict[str, float]:
    return {
        f"{one.name}{sorted(one.labels.items())}": one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


async def test_metrics_are_prometheus_text_with_the_ledgers_account(client):
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    seen = samples(answer.text)
    assert seen["j10ce_slots[('namespace', 'shop'), ('policy', 'b'), ('state', 'unplaced')]"] == 2
    assert seen["j10ce_slots[('namespace', 'default'), ('policy', 'a'), ('state', 'held')]"] == 3
    assert seen["j10ce_slots_at_risk[('namespace', 'default'), ('policy', 'a')]"] == 2
    assert seen["j10ce_capacity[('resource', 'cpu'), ('state', 'held')]"] == 6, "cores, not millicores"
    assert seen["j10ce_ledger_moves_total[]"] == 7
    assert seen["j10ce_ledger_nodes[]"] == 2


def test_metric_names_follow_the_conventions():
    METRICS.look()
    names = {family.name for family in METRICS.registry.collect()}
    assert all(name.startswith("j10ce_") for name in names)
    assert {f"j10ce_{verb}_duration_seconds" for verb in ("filter", "prioritize", "preempt", "bind")} <= names


def test_refusals_by_policy_have_a_bound():
    metrics = Metrics()
    for number in range(MOST_POLICIES + 50):
        metrics.refused([f"default/p{number}"], 0)
    seen = {key: value for key, value in samples(metrics.exposition().decode()).items() if "refusals" in key}
    assert len(seen) == MOST_POLICIES + 1
    assert seen["j10ce_filter_refusals_total[('policy', 'other')]"] == 50


def test_observe_counts_what_it_would_have_refused():
    metrics = Metrics()
    metrics.refused((), 3)
    metrics.refused((), 0)
    assert samples(metrics.exposition().decode())["j10ce_filter_would_refuse_total[]"] == 1


async def test_verbs_are_timed_and_failures_counted():
    metrics = Metrics()
    metrics.observe("/filter", 0.0002, 200)
    metrics.observe("/filter", 0.0002, 503)
    seen = samples(metrics.exposition().decode())
    assert seen["j10ce_filter_duration_seconds_count[]"] == 2
    assert seen["j10ce_verb_failures_total[('status', '503'), ('verb', 'filter')]"] == 1


async def test_it_answers_on_a_real_socket(running):
    from adapters.memory import MemoryAPI

    async with running(MemoryAPI()) as program, httpx.AsyncClient() as client:
        url = f"http://{program.config.address}"
        text = (await client.get(f"{url}/metrics")).text
        assert samples(text)["j10ce_ready[]"] == 1
        assert (await client.get(f"{url}/holds")).json() == {"mode": "Guard", "ready": True, "policies": []}
