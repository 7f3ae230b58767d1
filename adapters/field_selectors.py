"""Selectors as the API server has them: which objects one selects, and which events a watch gets."""

from __future__ import annotations

from typing import Any

import orjson

from adapters.api import WatchEvent


def selects(selector: str, raw: bytes) -> bool:
    """True when the object has all the values; PATH=VALUE, PATH==VALUE, PATH!=VALUE, joined by commas.

    An empty selector selects everything; a field that is absent is "". ValueError: not a selector.
    """
    if not selector:
        return True
    body = orjson.loads(raw)
    held = [_holds(term, body) for term in selector.split(",")]  # each is read: a wrong one is told
    return all(held)


def labelled(selector: str, raw: bytes) -> bool:
    """True when the object has the label of a label selector KEY=VALUE; an empty one selects everything."""
    if not selector:
        return True
    key, _, value = selector.partition("=")
    labels = orjson.loads(raw)["metadata"].get("labels") or {}
    return bool(labels.get(key) == value)


def as_watched(selector: str, event: WatchEvent, before: bytes | None) -> WatchEvent | None:
    """The event as a watch with this selector sees it; None: not at all.

    `before`: the object before it; None: there was none. What comes into the selection is ADDED, what leaves
    it DELETED (k8s.io/apiserver, storage/cacher convertToWatchEvent).
    """
    if not selector or event.type == "BOOKMARK":
        return event
    was = before is not None and selects(selector, before)
    if event.type == "DELETED":
        return event if was else None
    now = selects(selector, event.object)
    if now:
        return WatchEvent("MODIFIED" if was else "ADDED", event.object)
    return WatchEvent("DELETED", event.object) if was else None


def _holds(term: str, body: dict[str, Any]) -> bool:
    path, sign, value = term.partition("=")
    if not sign or not path.strip("!"):
        raise ValueError(f"{term!r} is not a term of a field selector, such as spec.nodeName=NODE")
    equal = _at(body, path.removesuffix("!")) == value.removeprefix("=")
    return equal != path.endswith("!")


def _at(body: Any, path: str) -> str:
    for part in path.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return "" if body is None else str(body)
