"""What is known of placeholders, whatever order answers and watches come in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from adapters.kubernetes import decode
from extender.standing import UNSEEN_SECONDS, Standing
from qos import keys
from qos.cluster.placeholders import Placeholder

ONE = Placeholder("u1", "hold-1", "default/a", "form", "n0", bound=False)


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def standing(clock: Time) -> Standing:
    return Standing("holds", lambda: None, clock)


def show(standing: Standing, one: Placeholder) -> None:
    """The watch shows it."""
    marks = {
        keys.PLACEHOLDER_OF_ANNOTATION: one.policy,
        keys.PLACEHOLDER_FORM_ANNOTATION: one.form,
        keys.PLACEHOLDER_NODE_ANNOTATION: one.node,
    }
    labels = {keys.PLACEHOLDER_LABEL: "true"}
    meta = {"name": one.name, "namespace": "holds", "uid": one.uid, "labels": labels, "annotations": marks}
    spec: dict[str, Any] = {"containers": []} | ({"nodeName": one.node} if one.bound else {})
    raw = orjson.dumps({"metadata": meta, "spec": spec, "status": {}})
    assert standing.take(decode.pod(raw), raw)


def test_an_answer_that_comes_after_the_watch_has_shown_it_bound_changes_nothing(standing: Standing) -> None:
    show(standing, replace(ONE, bound=True))
    standing.made(ONE)
    assert standing.of("default/a") == [replace(ONE, bound=True)]


def test_an_answer_that_comes_after_the_watch_has_shown_it_gone_brings_nothing_back(
    standing: Standing,
) -> None:
    show(standing, ONE)
    assert standing.remove(ONE.uid)
    standing.made(ONE)
    assert not standing.of("default/a")


def test_what_we_made_and_no_watch_shows_is_left_out_in_the_end(standing: Standing, clock: Time) -> None:
    standing.made(ONE)
    clock.now = UNSEEN_SECONDS - 1
    standing.forget_unseen()
    assert standing.of("default/a") == [ONE]
    clock.now = UNSEEN_SECONDS
    standing.forget_unseen()
    assert not standing.of("default/a")
    show(standing, replace(ONE, bound=True))
    assert standing.of("default/a") == [replace(ONE, bound=True)]


def test_what_the_watch_has_shown_stays(standing: Standing, clock: Time) -> None:
    standing.made(ONE)
    show(standing, ONE)
    clock.now = 10 * UNSEEN_SECONDS
    standing.forget_unseen()
    assert standing.of("default/a") == [ONE]


def test_beyond_are_those_that_no_hold_on_the_node_needs(standing):
    others = [replace(ONE, uid=uid, name=uid) for uid in ("a", "b", "c")]
    for one in (replace(others[0], bound=True), others[1], replace(others[2], nominated=True)):
        standing.put(one)
    assert [one.uid for one in standing.beyond("n0", {})] == ["c", "b"]
    assert [one.uid for one in standing.beyond("n0", {"default/a": 1})] == ["c", "b"]
    assert [one.uid for one in standing.beyond("n0", {"default/a": 2})] == ["b"]  # the nominated one stays
    assert standing.beyond("n0", {"default/a": 3}) == []
    assert standing.beyond("n1", {}) == []
