"""What preemptors were answered, and which of them a victim's end may concern."""

from __future__ import annotations

from ledger.offers import EVICTION_SECONDS, Offer, Offers


class _Untouched(dict[str, tuple[str, ...]]):
    def get(self, *_: object) -> tuple[str, ...]:
        raise AssertionError("looked at")


def test_a_victims_end_concerns_those_that_were_answered_lately_and_only_they_are_looked_at() -> None:
    offers = Offers()
    for number in range(3):
        offers.put(f"old-{number}", Offer(_Untouched(), 0.0))
    offers.put("again", Offer(_Untouched(), 0.0))
    offers.put("new", Offer({"n0": ("v",), "n1": ("w",)}, 9.0))
    offers.put("elsewhere", Offer({"n0": ("v",)}, 9.0, node="n1"))
    offers.put("again", Offer({"n0": ("v",)}, 9.0))
    now = 1.0 + EVICTION_SECONDS
    assert [*offers.awaiting("v", "n0", now)] == ["again", "new"]
    assert [*offers.awaiting("v", "n1", now)] == []
    offers.drop("new")
    assert [*offers.awaiting("v", "n0", now)] == ["again"]
