"""Whatever is asked at once, and in which order it is stored: the quotas that come of it break no rule."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.kubernetes import quotas
from adapters.webhooks import review
from manager.quotas import reviews
from manager.quotas.known import UnderWay
from qos.cluster.quota import ElasticQuota
from quota import checks
from quota.book import Book
from tests.manager.quotas.test_reviews import Object, asked, quota

NAMES = tuple("abcd")
PUT = st.tuples(
    st.just("put"),
    st.sampled_from(NAMES),
    st.sampled_from((0, 5, 15)),
    st.sampled_from(("", "a", "a", "b")),
    st.booleans(),
)
DELETE = st.tuples(st.just("delete"), st.sampled_from(NAMES))
STORE = st.tuples(st.just("store"), st.integers(0, 3))
STEPS = st.lists(st.one_of(PUT, PUT, DELETE, STORE), max_size=20)


class World:
    """What is stored, and what was let through and is not stored yet; one change of an object at a time."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.under_way = UnderWay(lambda: 0.0)
        self.passed: dict[str, Object | None] = {}
        self.version = 0

    def read(self) -> list[ElasticQuota]:
        return [quotas.quota(json.dumps(one).encode()) for one in self.stored.values()]

    def ask(self, name: str, new: Object | None) -> None:
        old = self.stored.get(name)
        if name in self.passed or (new is None and old is None):
            return
        verb = "DELETE" if new is None else "UPDATE" if old else "CREATE"
        request = review.read(asked(verb, new, old))
        books = self.under_way.books(self.read(), f"teams/{name}")
        if not reviews.of_quota(request, books):
            self.under_way.note(reviews.change(request))
            self.passed[name] = new

    def store(self, place: int) -> None:
        name = [*self.passed][place % len(self.passed)]
        new = self.passed.pop(name)
        self.version += 1
        if new is None:
            del self.stored[name]
        else:
            new["metadata"]["resourceVersion"] = str(self.version)
            self.stored[name] = new


@given(STEPS)
def test_no_rule_is_broken(steps: list[Any]) -> None:
    world = World()
    world.ask("a", quota("a", "20", is_parent=True))
    world.store(0)
    for what, *rest in steps:
        if what == "put":
            name, least, parent, is_parent = rest
            world.ask(name, quota(name, str(least), parent, is_parent=is_parent))
        elif what == "delete":
            world.ask(rest[0], None)
        elif world.passed:
            world.store(rest[0])
    while world.passed:
        world.store(0)
    book = Book()
    book.change(world.read())
    assert [told for one in world.read() for told in checks.of_change(book, one)] == []
