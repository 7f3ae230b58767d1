"""What a look says of what others want."""

from __future__ import annotations

import pytest

from agent.enforcement.foreign import Look, seen
from agent.enforcement.originals import Record
from agent.enforcement.writers import ENDED, UNSEEN, UNTOLD

SHARES = "cpu.shares"


def look(have: int, want: int, *, own: bool = True, shared: bool = False, writer: str = UNTOLD) -> Look:
    after = max(have, want) if shared else want
    return Look(SHARES, str(have), str(want), str(after), own and not shared, shared, writer)


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_file_held_at_first_is_others(shared: bool) -> None:
    assert seen(None, look(200, 600, shared=shared)) == Record("600", "200")


@pytest.mark.parametrize("shared", [False, True])
def test_our_own_value_at_first_is_theirs_only_where_others_write_the_file(shared: bool) -> None:
    assert seen(None, look(600, 600, shared=shared)) == Record("600", "600")
    fresh = Look("memory.min", "4096", "4096", "4096", not shared, shared, UNTOLD)
    assert seen(None, fresh) == Record("4096", "0")


def test_a_first_look_counts_for_nothing_where_we_may_have_been_before() -> None:
    assert seen(None, look(200, 600), first_looks=False) == Record("600", None)


def test_what_was_told_before_the_first_write_stays() -> None:
    assert seen(Record("", "204"), look(600, 600)) == Record("600", "204")


def test_ours_is_not_theirs() -> None:
    assert seen(Record("600", "200"), look(600, 700)) == Record("700", "200")


@pytest.mark.parametrize("writer", [ENDED, UNTOLD, UNSEEN, "kubelet", "runtime", "systemd"])
def test_another_value_of_those_who_decide_is_theirs(writer: str) -> None:
    assert seen(Record("600", "200"), look(300, 600, writer=writer)) == Record("600", "300")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("writer", ["other", "agent"])
def test_what_a_person_writes_is_drift_and_nothing_to_plan_from(writer: str, shared: bool) -> None:
    for have in (77, 900):
        assert seen(Record("600", "200"), look(have, 600, shared=shared, writer=writer)).original == "200"


def test_above_the_container_no_short_lived_process_decides() -> None:
    assert seen(Record("600", "200"), look(77, 600, own=False, writer=ENDED)) == Record("600", "200")
    assert seen(Record("600", "200"), look(77, 600, own=False, writer=UNTOLD)) == Record("600", "77")


def test_kubelet_may_want_the_same_as_we() -> None:
    assert seen(Record("600", "200"), look(600, 600, writer="kubelet")) == Record("600", "600")
    assert seen(Record("600", "200"), look(600, 600, writer="runtime")) == Record("600", "200")  # by NRI ours


@pytest.mark.parametrize(
    ("have", "writer", "original"),
    [
        (900, ENDED, "200"),  # the hook
        (900, UNTOLD, "200"),  # the hook, perhaps; kubelet's event comes
        (900, UNSEEN, "900"),
        (900, "kubelet", "900"),
        (300, ENDED, "200"),
        (300, UNTOLD, "300"),  # the hook never lowers
        (300, UNSEEN, "300"),
        (300, "kubelet", "300"),
    ],
)
def test_a_shared_file_that_was_raised(have: int, writer: str, original: str) -> None:
    assert seen(Record("600", "200"), look(have, 600, shared=True, writer=writer)).original == original
