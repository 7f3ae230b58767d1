"""Bandwidth as people write it: whole bits a second; what is refused says what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from qos.api.network import Bandwidth
from qos.quantity import is_whole, parse

ADAPTER = TypeAdapter(Bandwidth)

_written = st.one_of(
    st.integers(-10, 10**15),
    st.builds(
        lambda sign, whole, part, unit: f"{sign}{whole}{part}{unit}",
        st.sampled_from(["", "", "+", "-"]),
        st.integers(0, 10**7),
        st.sampled_from(["", "", ".", ".0", ".5", ".125", ".99999"]),
        st.sampled_from(
            ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "E6", "e-3"]
        ),
    ),
)


@given(_written)
def test_what_is_taken_is_whole_bits_within_bounds(written: str | int) -> None:
    try:
        taken = ADAPTER.validate_python(written)
    except ValidationError:
        return
    assert taken == written, "as it was written"
    assert is_whole("", written)
    assert 1_000 <= parse("", written) <= 64 << 40


@given(st.integers(1, 10**6))
def test_every_number_of_megabits_is_taken(count: int) -> None:
    assert parse("", ADAPTER.validate_python(f"{count}M")) == count * 10**6


@pytest.mark.parametrize("written", ["100m", "1000000m", "100.5", "1.3Mi", "1e-3"])
def test_a_fraction_of_a_bit_is_refused_and_what_was_meant_is_said(written: str) -> None:
    with pytest.raises(ValidationError, match="100M was probably meant, not 100m"):
        ADAPTER.validate_python(written)
