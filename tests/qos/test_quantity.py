import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.quantity import MAXIMUM, QuantityError, parse, render

RESOURCES = st.sampled_from(
    ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "example.com/gpu"]
)
SUFFIXES = {
    "": Fraction(1),
    **{letter: Fraction(1000) ** n for n, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024) ** n for n, letter in enumerate("KMGTPE", start=1)},
    **{letter: Fraction(1, 1000**n) for n, letter in enumerate("mun", start=1)},
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
    "e+0": Fraction(1),
}


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "500m", 500),
        ("cpu", "2", 2000),
        ("cpu", "0.1", 100),
        ("cpu", ".5", 500),
        ("cpu", "1.", 1000),
        ("cpu", "+1", 1000),
        ("cpu", "1k", 1_000_000),
        ("cpu", "100u", 1),
        ("cpu", "1n", 1),
        ("cpu", "1500.1m", 1501),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("memory", "8Gi", 8 * 2**30),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "1E", MAXIMUM),
        ("memory", "1E3", 1000),
        ("memory", "1e3", 1000),
        ("memory", "1e-3", 1),
        ("memory", "128974848000m", 128974848),
        ("memory", "0.0000000001", 1),
        ("memory", "0", 0),
        ("memory", "-0", 0),
        ("memory", "-1.5", -2),
        ("memory", "1e99", MAXIMUM),
        ("memory", "10e999", MAXIMUM),
        ("memory", "-1e" + "9" * 5000, -MAXIMUM),
        ("memory", "0e" + "9" * 5000, 0),
        ("cpu", "9" * 5000, MAXIMUM),
        ("cpu", "0" * 100_000 + "1500m", 1500),
        ("memory", "0" * 100 + "1Gi", 2**30),
        ("cpu", "1e" + "0" * 100 + "3", 1_000_000),
        ("cpu", "-" + "0" * 100 + ".5" + "0" * 100, -500),
        ("memory", "-16Ei", -MAXIMUM),
        ("example.com/gpu", "3", 3),
        ("pods", "110", 110),
    ],
)
def test_parse(resource, text, amount):
    assert parse(resource, text) == amount


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 ",
        " 1",
        "1\n",
        "1K",
        "1ki",
        "1mi",
        "1Zi",
        "Gi",
        ".",
        "-",
        "1e",
        "1e1.5",
        "1e3Ki",
        "1_000",
        "0x10",
        "\u00b2",
        "\u0661",
        "--1",
        "1.2.3",
        "1e-1000000",
        "0." + "3" * 65,
        "9" * 65 + "e-70",
        "nan",
        "inf",
    ],
)
def test_what_is_no_quantity_is_named(text):
    with pytest.raises(QuantityError, match="memory: ") as caught:
        parse("memory", text)
    assert caught.value.resource == "memory"
    assert text[:64] in str(caught.value.value)


@pytest.mark.parametrize("value", [True, None, float("nan"), float("inf")])
def test_values_that_are_no_text(value):
    with pytest.raises(QuantityError):
        parse("cpu", value)


def test_a_cached_number_does_not_excuse_a_truth_value():
    assert parse("cpu", 1) == 1000
    with pytest.raises(QuantityError):
        parse("cpu", True)


@given(
    RESOURCES,
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**6 - 1),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_parse_is_exact_and_rounds_away_from_zero(resource, whole, fraction, suffix):
    text = f"{whole}.{fraction:06d}{suffix}"
    size = abs(whole) + Fraction(fraction, 10**6)
    exact = size * SUFFIXES[suffix] * (1000 if resource == "cpu" else 1)
    rounded = min(math.ceil(exact), MAXIMUM)
    assert parse(resource, text) == (-rounded if text.startswith("-") else rounded)


@given(RESOURCES, st.integers(-MAXIMUM, MAXIMUM))
def test_render_and_parse_agree(resource, amount):
    assert parse(resource, render(resource, amount)) == amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("cpu", 1_000_000, "1k"),
        ("cpu", -1500, "-1500m"),
        ("memory", 8 * 2**30, "8Gi"),
        ("memory", 3 * 2**29, "1536Mi"),
        ("memory", 1000, "1000"),
        ("memory", 8_000_000_000, "7812500Ki"),
        ("ephemeral-storage", 2**40, "1Ti"),
        ("hugepages-1Gi", 2**31, "2Gi"),
        ("pods", 110, "110"),
        ("example.com/gpu", 0, "0"),
    ],
)
def test_render_as_kubectl_does(resource, amount, text):
    assert render(resource, amount) == text
