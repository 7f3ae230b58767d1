"""Bits and bytes: every crossing, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.bandwidth import from_bits, from_quantity
from qos.quantity import QuantityError


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1k", 125),
        ("8k", 1000),
        ("4M", 500_000),
        ("10M", 1_250_000),
        ("2.5G", 312_500_000),
        ("1Gi", 134_217_728),
        ("1e6", 125_000),
        ("1000001", 125_000),
        (1_000_000_000, 125_000_000),
    ],
)
def test_a_quantity_is_bits_and_becomes_bytes(text: str | int, rate: int) -> None:
    assert from_quantity("limit", text) == rate


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "100m",
            "limit: '100m' is not a quantity: less than 1k bits a second: m means thousandths, M millions",
        ),
        ("999", "less than 1k bits a second"),
        ("0", "less than 1k bits a second"),
        ("-10M", "less than 1k bits a second"),
        ("300T", "more bits a second than any link has"),
        ("10Mbit", "expected a number and a suffix"),
        ("", "expected a number and a suffix"),
    ],
)
def test_what_is_no_bandwidth_is_refused(text: str, why: str) -> None:
    with pytest.raises(QuantityError) as caught:
        from_quantity("limit", text)
    assert why in str(caught.value)


@given(st.integers(1000, 2**48 - 1))
def test_an_eighth_to_within_a_byte(bits: int) -> None:
    assert bits - 8 < from_quantity("limit", str(bits)) * 8 <= bits


@given(st.lists(st.integers(0, 2**40), max_size=30))
def test_floors_that_fit_in_bits_fit_in_bytes(floors: list[int]) -> None:
    published = sum(floors)
    assert sum(map(from_bits, floors)) <= from_bits(published)
