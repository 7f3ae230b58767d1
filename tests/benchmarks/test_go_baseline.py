"""The Go extender that ours is measured against decides as ours does."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest

from benchmarks import go_programs
from benchmarks.clusters import GI
from benchmarks.pod_json import pod_json
from benchmarks.serving import Connection
from extender import verbs
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import PlacementMode
from tests.ledger.builders import demand, ledger, node, pod

pytestmark = [pytest.mark.program, pytest.mark.timeout(600)]  # the first run builds it

CPU = ("100m", "1", "1.5", "2500m", "3", "0.25", "7", "1e1")
MEMORY = ("64Mi", "1Gi", "1.5Gi", "1G", "500M", "1e9", "123456789", "4Gi")


def cluster(dice: random.Random) -> Ledger:
    """Nodes of several sizes, half full; slots that do not move: the other program moves none."""
    made = ledger(
        *(node(f"n{i}", dice.choice((4, 8, 16)), memory=dice.choice((8, 32)) * GI) for i in range(12)),
        *(
            demand(f"p{i}", dice.randint(1, 6), dice.choice((1, 2, 3)), GI, mode=PlacementMode.PINNED)
            for i in range(dice.randint(1, 3))
        ),
        mode=Mode.GUARD,
    )
    for number in range(10):
        where = f"n{dice.randrange(12)}"
        made.set_pod(pod(f"there-{number}", dice.choice((0.5, 1, 3)), dice.randint(1, 4) * GI, node=where))
    made.report()
    return made


def asking(dice: random.Random, number: int) -> dict[str, Any]:
    body = pod_json(f"asks-{number}", 0.1, namespace="elsewhere")
    spec = body["spec"]
    spec["priority"] = dice.choice((0, 0, 0, 0, 1, 2_000_000_000))
    for container in spec["containers"]:
        container["resources"] = {"requests": amounts(dice)}
    if dice.random() < 0.3:
        start = {"name": "init", "resources": {"requests": amounts(dice)}}
        sidecar = start | {"name": "sidecar", "restartPolicy": "Always"}
        spec["initContainers"] = dice.sample([start, sidecar, start], dice.randint(1, 3))
    if dice.random() < 0.2:
        spec["overhead"] = {"cpu": "250m"}
    if dice.random() < 0.1:
        body["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return body


def amounts(dice: random.Random) -> dict[str, str]:
    asked = {"cpu": dice.choice(CPU), "memory": dice.choice(MEMORY), "ephemeral-storage": "1Gi"}
    return dict(dice.sample(sorted(asked.items()), dice.randint(0, 3)))


def answers(made: Ledger, to: Connection, body: dict[str, Any], names: list[str]) -> Iterator[list[str]]:
    args = orjson.dumps({"Pod": body, "Nodes": None, "NodeNames": names})
    for raw in (verbs.filter(args, made, 0.0).body, to.call("/filter", args)):
        answer = json.loads(raw)
        assert answer["Error"] == ""
        assert answer["NodeNames"] or answer["FailedNodes"] or answer["FailedAndUnresolvableNodes"]
        yield answer["NodeNames"]


def test_it_answers_as_ours_does() -> None:
    kinds = set()
    for seed in range(25):
        dice = random.Random(seed)
        made = cluster(dice)
        held = made.held_nodes()
        with go_programs.floors(made) as port, closing(Connection(port)) as to:
            for number in range(40):
                names = dice.sample([f"n{i}" for i in range(14)], dice.randint(1, 14))
                ours, theirs = answers(made, to, asking(dice, number), names)
                assert ours == theirs, f"seed {seed}, pod {number}"
                made.settle(f"uid-asks-{number}")
                kinds.add("refused" if not ours else "beside holds" if set(ours) & held else "without")
    assert kinds == {"refused", "beside holds", "without"}


def test_it_charges_pods_in_flight() -> None:
    made = ledger(node("n0", 4, 32 * GI), demand("p", 2, 1, GI, mode=PlacementMode.PINNED), mode=Mode.GUARD)
    made.report()
    with go_programs.floors(made, bound_at_once=False) as port, closing(Connection(port)) as to:
        for number, (cores, fits) in enumerate([(1, True), (1.5, False), (1, True), (0.5, False)]):
            ours, theirs = answers(made, to, pod_json(f"asks-{number}", cores), ["n0"])
            assert ours == theirs == (["n0"] if fits else [])
