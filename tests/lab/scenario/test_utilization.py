"""How much of what could be in use was in use."""

from __future__ import annotations

import pytest

from lab.scenario.checks import Check
from lab.scenario.expectations import Facts, judge
from lab.scenario.observation import Observation, PodRecord
from lab.scenario.utilization import utilization
from qos.cluster.objects import Node, Pod


def seen(cpus: int, *pods: tuple[int, float, float | None, float | None]) -> Observation:
    """Pods: how many CPUs, when made, when bound, when gone."""
    one = Observation("scenario", nodes={"n": Node("n", "u", {"cpu": cpus * 1000})})
    for number, (asks, created, bound, gone) in enumerate(pods):
        pod = Pod(f"u{number}", "scenario", f"p{number}", {"cpu": asks * 1000})
        one.pods[pod.uid] = PodRecord(pod, created, bound, gone)
    return one


@pytest.mark.parametrize(
    ("pods", "share"),
    [
        ([], 1.0),
        ([(2, 0, 0, 10)], 1.0),
        ([(2, 0, 5, 10)], 0.5),
        ([(2, 0, 0, 10), (2, 0, None, 10)], 0.5),
        ([(4, 0, 0, 10), (4, 0, None, 10)], 1.0),
        ([(2, 0, 0, 10), (1, 20, 25, 30)], 25 / 30),
    ],
    ids=["nothing", "all", "late", "half waits", "there is no more", "nobody asks"],
)
def test_a_part_of_what_is_asked_for_and_there(
    pods: list[tuple[int, float, float | None, float | None]], share: float
) -> None:
    assert utilization(seen(4, *pods), "cpu") == pytest.approx(share)


def test_it_can_be_expected() -> None:
    facts = Facts(seen(4, (2, 0, 5, 10)))
    half = Check.model_validate({"utilization": {"percent": {"atLeast": 50}}})
    more = Check.model_validate({"utilization": {"resource": "cpu", "percent": {"atLeast": 51}}})
    assert judge(half, facts).true
    assert (judge(more, facts).true, judge(more, facts).saw) == (False, "percent 50")
