"""What people say of a link: options, and labels over them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from agent.network.told import Told, ToldWrongError, interface, over, rate, share
from qos import keys


@pytest.mark.parametrize(
    ("text", "found"),
    [("", 0), ("10G", 1_250_000_000), ("2.5G", 312_500_000), ("100M", 12_500_000), ("1Gi", 134_217_728)],
)
def test_bits_are_read_and_bytes_are_kept(text: str, found: int) -> None:
    assert rate("--link-egress", text) == found


@pytest.mark.parametrize(
    "text", ["100m", "1500m", "fast", "10Gb", "10 G", "-1G", "0", "999k", "1E", "10", "1n"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ToldWrongError, match=f"--link-egress {text}: expected bits a second, such as 10G"):
        rate("--link-egress", text)


def test_milli_is_refused_with_what_was_meant() -> None:
    with pytest.raises(ToldWrongError, match="m is milli, M is a million"):
        rate("--link-egress", "100m")


def test_shares() -> None:
    assert share("--link-egress-share", "0.94") == Fraction(94, 100)
    assert share("--link-egress-share", "1") == 1
    for text in ("0", "1.01", "-1", "nan", "94%", "", "1/0"):
        with pytest.raises(ToldWrongError, match=r"--link-egress-share .*such as 0\.94"):
            share("--link-egress-share", text)


def test_interfaces() -> None:
    assert interface("--link-interface", "enp3s0f1np1") == "enp3s0f1np1"
    assert interface("--link-interface", "bond0.100") == "bond0.100"
    for text in ("a name of two words", "etc/passwd", "sixteen-bytes-00"):
        with pytest.raises(ToldWrongError, match="--link-interface"):
            interface("--link-interface", text)


def test_labels_count_before_options_each_by_itself() -> None:
    options = Told("eth0", 1000, 2000, Fraction(1, 2), Fraction(1, 3))
    assert over(options, {}) == options
    assert over(options, {keys.LINK_EGRESS_LABEL: "8M"}) == Told(
        "eth0", 1_000_000, 2000, Fraction(1, 2), Fraction(1, 3)
    )
    labels = {keys.LINK_INTERFACE_LABEL: "bond0", keys.LINK_INGRESS_LABEL: "16M", "app": "x"}
    assert over(options, labels) == Told("bond0", 1000, 2_000_000, Fraction(1, 2), Fraction(1, 3))


def test_a_label_that_says_nothing_sensible_is_named() -> None:
    with pytest.raises(ToldWrongError, match=r"j10ce.io/link-egress 10Gbit: expected bits a second"):
        over(Told(), {keys.LINK_EGRESS_LABEL: "10Gbit"})
