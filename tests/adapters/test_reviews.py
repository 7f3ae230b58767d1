"""Who may read a page of ours, by what an API server says that is played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from adapters.api import APIError, Resource, Unreachable
from adapters.kubernetes.reviews import Access, Guesses, Reviews

READER, OTHER = "readers-token", "others-token"


class Reviewer:
    """An API server that knows two tokens, one of which may read; it counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.allowed = {"reader"}

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> bytes:
        assert namespace == ""
        assert not resource.namespaced
        assert (body["apiVersion"], body["kind"]) == (f"{resource.group}/v1", resource.kind)
        self.asked.append(resource.kind)
        if self.fails:
            raise self.fails
        return json.dumps({"status": getattr(self, resource.plural)(body["spec"])}).encode()

    def tokenreviews(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        name = {READER: "reader", OTHER: "other"}.get(spec["token"])
        if name is None:
            return {"user": {}, "error": "invalid bearer token"}
        user = {"username": name, "uid": "u", "groups": ["g"], "extra": {"key": ["value"]}}
        return {"authenticated": True, "user": user}

    def subjectaccessreviews(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert (spec["uid"], spec["groups"], spec["extra"]) == ("u", ["g"], {"key": ["value"]})
        return {"allowed": spec["user"] in self.allowed}


class Asked:
    """Reviews of a Reviewer, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = Reviewer()
        self.reviews = Reviews(self.server, "/metrics", lambda: self.now)  # type: ignore[arg-type]

    async def access(self, token: str, peer: str = "10.0.0.7") -> Access:
        return await self.reviews.access(token, peer)


async def test_the_api_server_says_who_may() -> None:
    asked = Asked()
    assert await asked.access(READER) is Access.ALLOWED
    assert await asked.access(OTHER) is Access.REFUSED
    assert await asked.access("guessed") is Access.UNKNOWN
    assert asked.server.asked.count("SubjectAccessReview") == 2


async def test_nobody_is_asked_about_no_token() -> None:
    asked = Asked()
    assert await asked.access("") is Access.UNKNOWN
    assert asked.server.asked == []


async def test_a_good_answer_is_kept_for_two_minutes_and_a_right_taken_away_counts_then() -> None:
    asked = Asked()
    await asked.access(READER)
    asked.server.allowed.clear()
    asked.now += 119
    assert await asked.access(READER) is Access.ALLOWED
    assert len(asked.server.asked) == 2
    asked.now += 2
    assert await asked.access(READER) is Access.REFUSED


@pytest.mark.parametrize("error", [Unreachable("away"), APIError(403, "Forbidden", "no right to ask")])
async def test_while_the_api_server_is_away_who_might_still_may_for_an_hour(error: Exception) -> None:
    asked = Asked()
    await asked.access(READER)
    asked.server.fails = error
    asked.now += 3599
    assert await asked.access(READER) is Access.ALLOWED
    assert await asked.access(OTHER) is Access.NO_ANSWER
    asked.now += 2
    assert await asked.access(READER) is Access.NO_ANSWER


async def test_guesses_are_no_load_on_the_api_server_and_do_not_lock_out_who_may() -> None:
    asked = Asked()
    await asked.access(READER)
    asked.now += 10
    found = [await asked.access(f"guess-{number}", f"10.0.1.{number % 50}") for number in range(1000)]
    assert found.count(Access.UNKNOWN) == 5
    assert found.count(Access.TOO_MANY) == 995
    asked.now += 115
    for number in range(1000):
        await asked.access(f"more-{number}")
    assert await asked.access(READER) is Access.ALLOWED
    asked.now += 1
    assert await asked.access("one-more", "10.0.0.8") is Access.UNKNOWN


async def test_one_stranger_uses_up_nothing_of_what_a_reader_with_a_new_token_may() -> None:
    """An hour of it: 3 guesses at once, then one in ten seconds. Prometheus has another token each hour."""
    asked = Asked()
    for second in range(3600):
        for number in range(10):
            await asked.access(f"guess-{second}-{number}", "10.0.0.66")
        asked.now += 1
    assert asked.server.asked.count("TokenReview") <= 3 + 360
    assert await asked.access(READER) is Access.ALLOWED


async def test_addresses_are_remembered_up_to_a_bound() -> None:
    guesses = Guesses(0.0)
    for number in range(10_000):
        guesses.may_ask(str(number), 0.0)
    assert len(guesses._peers) == 256
