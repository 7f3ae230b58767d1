"""Mistakes in keeping placeholders, planted on purpose: most of them where our requests are sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import extender.placeholders
from adapters.api import PODS, APIError, Unreachable
from extender.gate import Gate
from extender.hand_over import HandOver
from extender.overcommitted import Overcommitted
from extender.placeholders import Placeholders
from extender.refused import Refused
from extender.standing import Standing
from ledger.ledger import Ledger
from ledger.state import State
from simulation.api import Client
from simulation.mutations import Mutation

KEEPER = "Placeholders"
_LATE_SECONDS = 0.5


def _nominates_nobody(right: Any) -> Any:
    async def patch(self: Client, kind: Any, namespace: str, name: str, body: Any, **options: Any) -> bytes:
        if self.name == "extender" and body.get("status", {}).get("nominatedNodeName"):
            return b""
        return await right(self, kind, namespace, name, body, **options)  # type: ignore[no-any-return]

    return patch


def _goes_late(right: Any) -> Any:
    async def delete(self: Client, *args: Any, **options: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(_LATE_SECONDS)
            with contextlib.suppress(APIError, Unreachable):
                await right(self, *args, **options)

        if self.name == "extender" and args[0] is PODS:
            self.part.start(later())
        else:
            await right(self, *args, **options)

    return delete


def _lifts_no_gate(right: Any) -> Any:
    async def patch(self: Client, kind: Any, namespace: str, name: str, body: Any, **options: Any) -> bytes:
        if self.name == "extender" and "schedulingGates" in body.get("spec", {}):
            return b""
        return await right(self, kind, namespace, name, body, **options)  # type: ignore[no-any-return]

    return patch


def _here_before_there(right: Any) -> Any:
    """Whatever is not where it is wanted goes at once."""

    def decide(wanted: Mapping[str, int], form: str, there: Any, *rest: Any) -> Any:
        there = list(there)
        steps = right(wanted, form, there, *rest)
        more = [one for one in there if one.bound and one.node not in wanted and one not in steps.delete]
        return replace(steps, delete=(*steps.delete, *more))

    return decide


def _nobody_makes_room(right: Any) -> Any:
    return lambda wanted, form, there, _crowded, *rest: right(wanted, form, there, {}, *rest)


def _form_does_not_matter(right: Any) -> Any:
    def decide(wanted: Mapping[str, int], form: str, there: Any, *rest: Any) -> Any:
        return right(wanted, form, [replace(one, form=form) for one in there], *rest)

    return decide


def _does_nothing(answer: Any = None) -> Any:
    return lambda _right: lambda *_args, **_options: answer


def _is_true(_right: Any) -> Any:
    return property(lambda _self: True)


def _asks_nobody(_right: Any) -> Any:
    async def ask(*_args: Any) -> None:
        pass

    return ask


def _given_again(right: Any) -> Any:
    def give(self: Standing, one: Any) -> bool:
        right(self, one)
        self.take_back(one)
        return True

    return give


def _believes_the_answer(right: Any) -> Any:
    del right
    return lambda self, one: self.put(one)


OF_PLACEHOLDERS = tuple(
    Mutation(about, where, name, wrong, KEEPER)
    for about, where, name, wrong in (
        ("owners are not nominated", Client, "patch", _nominates_nobody),
        ("placeholders go after the gate", Client, "delete", _goes_late),
        ("gates are not lifted", Client, "patch", _lifts_no_gate),
        ("owners are not gated", Gate, "_gates", _does_nothing(False)),
        ("a placeholder is given to several owners", Standing, "give", _given_again),
        ("moves delete before they create", extender.placeholders, "decide", _here_before_there),
        ("nobody makes room for who waits", extender.placeholders, "decide", _nobody_makes_room),
        ("placeholders of another form stay", extender.placeholders, "decide", _form_does_not_matter),
        ("placeholders of policies that are gone stay", Standing, "policies", _does_nothing(())),
        ("a placeholder is a claim as well", Standing, "is_placeholder", _does_nothing(False)),
        ("a hand-over that failed keeps its claim", Ledger, "release", _does_nothing()),
        ("a placeholder that did not go counts as gone", Standing, "take_back", _does_nothing()),
        ("the answer to a create counts more than the watch", Standing, "made", _believes_the_answer),
        ("no hold moves for who was refused", Refused, "_ask", _asks_nobody),
        ("a hold's room is lost to whom it moved for", State, "charges_win", _is_true),
        ("placeholders go by what was decided before", Placeholders, "_is_outdated", _does_nothing(False)),
        ("places where others stand are handed over", HandOver, "_has_room", _does_nothing(True)),
        ("owners come beside placeholders that are to go", Standing, "going", _does_nothing(())),
        ("placeholders go before kubelet refuses", Overcommitted, "look", _does_nothing(frozenset())),
    )
)
