"""Error budgets over rolling windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.deficit import budget
from agent.deficit.budget import WINDOWS, Budget, Budgets, Spent

HOUR, DAY = 3600.0, 86400.0
ADDED = st.lists(st.tuples(st.floats(0, 40 * DAY), st.floats(0.1, 1), st.floats(0, 1)), max_size=60)


@pytest.mark.parametrize(
    ("spent", "remaining"),
    [
        (Spent(0, 0), 1),
        (Spent(1000, 0), 1),
        (Spent(1000, 0.5), 0.5),
        (Spent(1000, 1), 0),
        (Spent(1000, 10), -9),
    ],
)
def test_what_remains(spent: Spent, remaining: float) -> None:
    assert spent.remaining == pytest.approx(remaining)


def test_old_seconds_fall_out_of_each_window_in_its_time() -> None:
    one = Budget()
    one.add(0.0, 100, 10)
    seen = {
        at: [name for name, spent in one.spent(at).items() if spent.deficit]
        for at in (0, HOUR, DAY, 28 * DAY)
    }
    assert seen == {0: ["1h", "24h", "28d"], HOUR: ["24h", "28d"], DAY: ["28d"], 28 * DAY: []}
    assert not one.empty(28 * DAY - 1)
    assert one.empty(28 * DAY)


@given(ADDED)
def test_a_window_holds_what_was_added_within_it_to_a_bucket(added: list[tuple[float, float, float]]) -> None:
    one = Budget()
    added.sort()
    for at, wanted, part in added:
        one.add(at, wanted, wanted * part)
    now = added[-1][0] if added else 0.0
    for name, window in WINDOWS.items():
        spent = one.spent(now)[name]
        certain = [wanted for at, wanted, _ in added if at > now - window.seconds + window.bucket]
        possible = [wanted for at, wanted, _ in added if at > now - window.seconds]
        assert sum(certain) - 1e-6 <= spent.wanted <= sum(possible) + 1e-6
        assert 0 <= spent.deficit <= spent.wanted + 1e-9
        assert len(one.buckets[name]) <= window.seconds // window.bucket


@given(ADDED, st.floats(0.001, 1))
def test_a_deficit_more_never_leaves_more(added: list[tuple[float, float, float]], more: float) -> None:
    one, other = Budget(), Budget()
    for at, wanted, part in sorted(added):
        one.add(at, wanted, wanted * part)
        other.add(at, wanted, wanted * part)
    one.add(41 * DAY, 1.0, 0.0)
    other.add(41 * DAY, 1.0, more)
    for name, spent in one.spent(41 * DAY).items():
        assert other.spent(41 * DAY)[name].remaining < spent.remaining <= 1


def test_a_month_of_one_policy_is_small() -> None:
    one = Budget()
    for minute in range(0, 28 * 24 * 60, 5):
        one.add(minute * 60.0, 300, 1)
    assert sum(len(buckets) for buckets in one.buckets.values()) <= 60 + 96 + 112


def test_seconds_that_nobody_wanted_make_no_policy() -> None:
    budgets = Budgets()
    budgets.add("shop/web", 0.0, 0.0, 0.0)
    assert budgets.policies == {}


def test_the_policies_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_POLICIES", 3)
    budgets = Budgets()
    for number in range(5):
        budgets.add(f"shop/{number}", number * HOUR, 1, 0)
    assert set(budgets.policies) == {"shop/2", "shop/3", "shop/4"}
    budgets.add("shop/new", 60 * DAY, 1, 0)
    assert set(budgets.spent(60 * DAY)) == {"shop/new"}
    assert set(budgets.policies) == {"shop/new"}  # those of which nothing is left go first
