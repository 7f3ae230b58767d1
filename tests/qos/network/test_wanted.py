from __future__ import annotations

from qos.network.wanted import class_id


def test_a_class_id_is_what_htb_reads_from_a_packets_priority() -> None:
    assert class_id(0x10) == 0x10CE0010
