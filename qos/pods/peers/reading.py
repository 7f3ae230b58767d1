"""Reading what people wrote on pods for other projects: JSON in annotations, and why it is not understood."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from qos.promises import CpuQuota, Overrides, Promises, Unsupported

_LONGEST_VALUE: Final = 120
_LONGEST_INTEGER: Final = 20
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Misread(NamedTuple):
    """A label or annotation, or a part of one, without effect: the pod, the key, its value, and why."""

    pod: str
    key: str
    value: str
    why: str

    def __str__(self) -> str:
        value = self.value if len(self.value) <= _LONGEST_VALUE else f"{self.value[:_LONGEST_VALUE]}..."
        return f"Pod {self.pod}: {self.key}: {value!r}: {self.why}"


class Said(NamedTuple):
    """What one annotation asks for; `oom_score_adj`: of single containers, by name.

    `unknown`: names in it that its own project does not know either: misspelt, or newer than this.
    """

    overrides: Overrides
    oom_score_adj: Mapping[str, int] = {}
    unsupported: tuple[Unsupported, ...] = ()
    unknown: tuple[str, ...] = ()


class Note(NamedTuple):
    """An annotation's text on a pod of this class and QoS class, and the promises that it may change."""

    text: str
    class_name: str
    qos: str
    so_far: Promises

    @property
    def no_burst(self) -> str:
        """Why bursting above the CPU quota is of no use to this pod; "" when it is."""
        if self.so_far.cpu_idle:
            return "has no effect: what runs only on idle CPUs does not burst"
        if self.so_far.cpu_quota is CpuQuota.NONE:
            return f"has no effect: class {self.class_name} has no CPU quota to burst above"
        return ""


Reader: TypeAlias = Callable[[Note], Said]
"""Reads one annotation. ValueError: it cannot be understood, and has no effect."""


class Fields:
    """A JSON object as Go's decoder takes it: names in any case, null as absent. Raises ValueError."""

    def __init__(self, text: str | Mapping[str, Any]) -> None:
        given = json_object(text) if isinstance(text, str) else text
        self._values = {name.lower(): value for name, value in given.items()}
        self._names = {name.lower(): name for name in given}

    def integer(self, name: str, low: int, high: int) -> int | None:
        """The number under this name, None where there is none."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name}: {shown(value)} is no integer from {low} to {high}")
        return value

    def boolean(self, name: str) -> bool | None:
        """True or false, None where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{name}: {shown(value)} is neither true nor false")
        return value

    def choice(self, name: str, allowed: Iterable[str]) -> str:
        """One of the allowed words, "" where there is none."""
        value = self.take(name)
        if value is None or value == "":
            return ""
        if value not in allowed:
            raise ValueError(f"{name}: {shown(value)} is none of {', '.join(allowed)}")
        return str(value)

    def text(self, name: str) -> str:
        """The text under this name, "" where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{name}: {shown(value)} is no text")
        return value or ""

    def given(self, name: str, low: int, high: int) -> bool:
        """Whether there is a number under this name."""
        return self.integer(name, low, high) is not None

    def objects(self, name: str) -> list[Mapping[str, Any]]:
        """A list of objects, empty where there is none."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ValueError(f"{name}: {shown(value)} is no list of objects")
        return value

    def rest(self) -> tuple[str, ...]:
        """The names that nobody has asked for, as they were written."""
        return tuple(self._names[name] for name in self._values)

    def take(self, name: str) -> Any:
        """Whatever is under this name, None where there is nothing."""
        return self._values.pop(name.lower(), None)


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in the text. ValueError says what else it is."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_integer_of_64_bits)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError('not a JSON object such as {"policy": "auto"}')
    return value


def text_object(text: str) -> dict[str, str]:
    """A JSON object of text values, as Katalyst's enhancements are. ValueError."""
    values = json_object(text)
    for name, value in values.items():
        if not isinstance(value, str):
            raise ValueError(f'{name}: {shown(value)} is no text: Katalyst reads only text, as in "100"')
    return values


def integer(name: str, text: str, low: int, high: int) -> int:
    """The integer in the text. ValueError."""
    if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
        raise ValueError(f"{name}: {shown(text)} is no integer from {low} to {high}")
    return int(text)


def shown(value: object) -> str:
    """A JSON value in a message: short."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _integer_of_64_bits(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError(f"{digits[:_LONGEST_INTEGER]}... is too long a number")
    return int(digits)
