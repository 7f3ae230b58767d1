"""Who keeps a policy's holds: whom it names, where that one runs."""

from __future__ import annotations

import pytest

from qos.cluster.keeping import Keepers
from qos.cluster.objects import Keeper, Selector
from qos.cluster.policy import Policy

E, P = Keeper.EXTENDER, Keeper.PLACEHOLDERS


def policy(keeper: Keeper | None) -> Policy:
    return Policy("default/p", "default", "p", "uid", 1, "1", 0.0, Selector(), {"cpu": 1000}, keeper=keeper)


@pytest.mark.parametrize(
    ("usual", "both", "named", "keeper", "said"),
    [
        (E, False, None, E, False),
        (P, False, None, P, False),
        (E, False, E, E, False),
        (E, False, P, E, True),
        (P, False, E, P, True),
        (E, True, None, E, False),
        (P, True, None, P, False),
        (E, True, P, P, False),
        (P, True, E, E, False),
    ],
)
def test_a_policy_has_the_keeper_it_names_if_that_runs(usual, both, named, keeper, said):
    keepers = Keepers(usual, both)
    assert keepers.of(policy(named)) is keeper
    assert bool(keepers.lacking(policy(named))) is said


def test_what_is_lacking_is_said_by_name():
    text = Keepers(E).lacking(policy(P))
    assert text.startswith("spec.keeper is Placeholders, which this installation does not run: ")
