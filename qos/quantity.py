"""Kubernetes quantities: text to canonical integers, and back as kubectl shows them.

The grammar is that of apimachinery's resource.Quantity: an optional sign, a decimal number, and at most one
of a binary suffix (Ki..Ei), a decimal suffix (n, u, m, k, M, G, T, P, E) and a decimal exponent (e3, E-2).
Arithmetic is exact; what is finer than the canonical unit is rounded up, away from zero, as upstream does.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from qos import keys

MAXIMUM: Final = 2**48
"""Larger amounts are capped here: beyond any node, and those of 30,000 nodes or pods add up in an int64."""

_MOST_DIGITS: Final = 64
_LARGEST_EXPONENT: Final = 99
_BEYOND: Final = 10**_LARGEST_EXPONENT
"""What has more digits, or a larger exponent, counts as so much."""
_BINARY: Final[dict[str, int]] = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_GRAMMAR: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))",
    re.ASCII,
)


class QuantityError(ValueError):
    """Not a quantity; the message names the resource and the value."""

    def __init__(self, resource: str, value: object, why: str) -> None:
        super().__init__(f"{resource}: {value!r} is not a quantity: {why}")
        self.resource = resource
        self.value = value


def parse(resource: str, text: str | float) -> int:
    """The amount in canonical units: cpu in millicores, everything else in whole bytes or counts.

    Rounded up, away from zero; capped at +-MAXIMUM. Negative amounts are quantities too: whether they make
    sense is the caller's to say. Raises QuantityError.
    """
    # The API server keeps leading zeros, a megabyte of them: such a text must be read, and not remembered.
    known = _parse if not isinstance(text, str) or len(text) <= _MOST_DIGITS else _parse.__wrapped__
    return known(resource, text)


@lru_cache(maxsize=65536, typed=True)
def _parse(resource: str, text: str | float) -> int:
    per_unit = 1000 if resource == keys.CPU else 1
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS:
        return min(int(text) * per_unit, MAXIMUM)
    amount = parse_large(resource, text)
    return max(-MAXIMUM, min(amount, MAXIMUM))


def parse_large(resource: str, text: str | float) -> int:
    """The same, not capped: for sums over a cluster. Raises QuantityError."""
    exact = _exact(resource, text) * (1000 if resource == keys.CPU else 1)
    rounded = -(-abs(exact.numerator) // exact.denominator)
    return rounded * (-1 if exact < 0 else 1)


def is_whole(resource: str, text: str | float) -> bool:
    """True for a quantity without a fraction: 2 and 1.5Gi, not 500m. Raises QuantityError."""
    return _exact(resource, text).denominator == 1


def has_fraction_of_unit(resource: str, text: str | float) -> bool:
    """True where the text has more decimals than its suffix makes whole: 100m, 1.0, 1.3Mi; not 1.5M, 2e3.

    As the API server's CEL sees it (isInteger), which looks at how the number is written. QuantityError.
    """
    _exact(resource, text)
    match = _GRAMMAR.fullmatch(str(text))
    assert match is not None
    decimals = len(match["number"].partition(".")[2])
    if match["binary"]:
        return "." in match["number"]
    return decimals > _power(match)


def _exact(resource: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(resource, value, "expected text such as 500m, 2 or 4Gi")
    text = str(value)
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(
            resource, _shown(text), "expected a number and a suffix such as m, k, M, G, Ki, Mi or Gi"
        )
    sign = -1 if text.startswith("-") else 1
    whole, _, fraction = match["number"].lstrip("+-").partition(".")
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    power = _power(match)
    if (
        len(fraction) > _MOST_DIGITS
        or power < -_LARGEST_EXPONENT
        or (len(whole) > _MOST_DIGITS and power < 0)
    ):
        raise QuantityError(
            resource, _shown(text), f"more than {_MOST_DIGITS} digits, or an exponent of three"
        )
    if not whole and not fraction:
        return Fraction(0)
    if len(whole) > _MOST_DIGITS or power > _LARGEST_EXPONENT:
        return Fraction(sign * _BEYOND)
    number = sign * Fraction(f"{whole or 0}.{fraction or 0}")
    if match["binary"]:
        return number * _BINARY[match["binary"]]
    return number * (10**power if power >= 0 else Fraction(1, 10**-power))


def _power(match: re.Match[str]) -> int:
    """The exponent of ten; of those with more than three digits only that it is too large."""
    exponent = match["exponent"]
    if exponent is None:
        return 0 if match["binary"] else _DECIMAL[match["decimal"] or ""]
    digits = exponent.lstrip("+-").lstrip("0")[:4] or "0"
    return -int(digits) if exponent.startswith("-") else int(digits)


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_DIGITS else text[:_MOST_DIGITS] + "..."


def render(resource: str, amount: int) -> str:
    """The amount (canonical units) as kubectl shows it (1500m, 2, 8Gi); parse() gives it back."""
    sign, size = ("-", -amount) if amount < 0 else ("", amount)
    if resource == keys.CPU:
        return sign + (f"{size}m" if size % 1000 else _with_decimal_suffix(size // 1000))
    if is_bytes(resource):
        return sign + _with_binary_suffix(size)
    return sign + _with_decimal_suffix(size)


def is_bytes(resource: str) -> bool:
    """True for resources counted in bytes: memory, ephemeral-storage, hugepages-*."""
    return resource in (keys.MEMORY, keys.EPHEMERAL_STORAGE) or resource.startswith(keys.HUGEPAGES_PREFIX)


def _with_binary_suffix(size: int) -> str:
    suffix = ""
    for name, unit in _BINARY.items():
        if size == 0 or size % unit:
            break
        suffix = name
    return f"{size // _BINARY.get(suffix, 1)}{suffix}"


def _with_decimal_suffix(size: int) -> str:
    suffix = ""
    for name in "kMGTPE":
        if size == 0 or size % 10 ** _DECIMAL[name]:
            break
        suffix = name
    return f"{size // 10 ** _DECIMAL[suffix]}{suffix}"
