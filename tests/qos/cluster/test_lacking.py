"""What a pod lacks of its floor, where it is raised; tests/cluster/test_requests.py asks an API server."""

from __future__ import annotations

import pytest

from qos.cluster.lacking import Lack, lacks
from qos.cluster.requests import effective
from qos.quantity import parse
from tests.qos.cluster import pods_below
from tests.qos.cluster.pods_below import FLOORS, Raised, raised, with_raised

GI = 2**30


def floor_of(texts):
    return {name: parse(name, text) for name, text in texts.items()}


def one(requests=None, limits=None, **more):
    resources = {name: part for name, part in (("requests", requests), ("limits", limits)) if part}
    return {"name": "app", "resources": resources} | more


@pytest.mark.parametrize(
    ("spec", "floor", "expected"),
    [
        ({"containers": [one()]}, {"cpu": 2000}, [Raised("cpu", 0, 2000, None)]),
        ({"containers": [one({"cpu": "2"})]}, {"cpu": 2000}, []),
        (
            {"containers": [one({"cpu": "1"}, {"cpu": "1500m"})]},
            {"cpu": 2000},
            [Raised("cpu", 0, 2000, 2000)],
        ),
        ({"containers": [one({"cpu": "1"}, {"cpu": "4"})]}, {"cpu": 2000}, [Raised("cpu", 0, 2000, None)]),
        (
            {"containers": [one({"cpu": "300m"}), one({"cpu": "700m"}, name="main")]},
            {"cpu": 2000},
            [Raised("cpu", 1, 1700, None)],
        ),
        ({"containers": [one()], "overhead": {"cpu": "250m"}}, {"cpu": 2000}, [Raised("cpu", 0, 1750, None)]),
        ({"containers": [one()], "initContainers": [one({"cpu": "2"})]}, {"cpu": 2000}, []),
        (
            {"containers": [one()], "initContainers": [one({"cpu": "500m"}, restartPolicy="Always")]},
            {"cpu": 2000},
            [Raised("cpu", 0, 1500, None)],
        ),
        (
            {"containers": [one({"memory": "1Gi"})], "resources": {"limits": {"memory": "2Gi"}}},
            {"memory": 4 * GI},
            [Raised("memory", None, 4 * GI, 4 * GI)],
        ),
        ({"containers": [one()]}, {"example.com/gpu": 1}, [Raised("example.com/gpu", 0, 1, 1)]),
        ({"containers": [one()]}, {"j10ce.io/egress-bandwidth": 10**8}, []),
    ],
)
def test_it_is_raised_by_what_is_lacking_and_where(spec, floor, expected):
    assert raised(spec, "main", lacks(effective(spec), floor)) == expected


def test_what_is_lacking_reads_as_kubectl_shows_it():
    assert str(Lack("cpu", 100, 2000)) == "cpu 100m, floor 2"


@pytest.mark.parametrize("floor", FLOORS)
def test_a_raised_pod_has_its_floor_and_nothing_of_it_is_lower(floor):
    raised_ones = 0
    for number in range(300):
        manifest = pods_below.pod(number)
        spec, wanted = manifest["spec"], floor_of(floor)
        missing = lacks(effective(spec), wanted)
        made = with_raised(spec, raised(spec, pods_below.main_container(manifest), missing))
        before, after = effective(spec), effective(made)
        raised_ones += bool(missing)
        assert not lacks(after, wanted)
        assert all(after[name] == wanted[name] for name, *_ in missing)
        assert all(after[name] >= amount for name, amount in before.items())
    assert 30 < raised_ones < 300
