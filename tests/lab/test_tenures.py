"""What the checker takes for promised of slots that are used up, or outlive their pods."""

from __future__ import annotations

from typing import Any

from lab.tenures import Tenures
from qos.cluster.policy import Policy
from qos.cluster.remembered import Outliving, Remembered
from tests.qos.builders import policy


def after(one: Policy, *seen: tuple[float, str], asked: int = 3, at: float) -> int:
    tenures = Tenures()
    for now, owners in seen:
        tenures.slots(one, asked, now)
        tenures.see(one, set(owners), now)
    return tenures.slots(one, asked, at)


def lasting(**more: Any) -> Policy:
    known = Remembered(0, dict.fromkeys("abc", "n1"), (Outliving("d", "n1", 99.0),))
    return policy(delay=10.0, remembered=known, **more)


def test_what_is_no_tenure_is_as_asked() -> None:
    assert after(policy(), (0.0, "ab"), (1.0, ""), at=2.0) == 3


def test_an_edit_ends_it() -> None:
    tenures, one = Tenures(), lasting()
    tenures.slots(one, 3, 0.0)
    tenures.see(one, set("abc"), 0.0)
    assert tenures.slots(one, 3, 0.0) == 3
    tenures.see(one, set("ab"), 1.0)
    assert tenures.slots(one, 1, 2.0) == 3
    assert tenures.slots(policy(), 1, 2.0) == 1
    assert tenures.slots(one, 1, 3.0) == 1


def test_a_used_slot_is_promised_until_its_pod_ends_or_the_delay_is_over() -> None:
    assert after(policy(once=True), (0.0, "ab"), at=1.0) == 3
    assert after(policy(once=True), (0.0, "ab"), (1.0, "b"), at=1.0) == 2
    assert after(policy(once=True, delay=10.0), (0.0, "ab"), (1.0, "b"), at=10.9) == 3
    assert after(policy(once=True, delay=10.0), (0.0, "ab"), (1.0, "b"), (2.0, "bc"), at=11.0) == 2


def test_after_a_scale_down_a_slot_is_promised_for_the_delay_and_no_more_than_was() -> None:
    tenures, one = Tenures(), lasting()
    assert tenures.slots(one, 3, 0.0) == 3
    tenures.see(one, set("abc"), 0.0)
    assert tenures.slots(one, 3, 0.0) == 3
    assert tenures.slots(one, 1, 1.0) == 3
    tenures.see(one, set("ab"), 2.0)
    assert tenures.slots(one, 1, 2.0) == 3
    tenures.see(one, set("abx"), 3.0)
    assert tenures.slots(one, 1, 3.0) == 3
    tenures.see(one, set("bx"), 4.0)
    assert (tenures.slots(one, 1, 13.9), tenures.slots(one, 1, 14.0)) == (3, 2)
