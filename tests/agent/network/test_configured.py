"""Files of others on the node: read when they are whole, kept as they were while they are not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.network.configured import Configured
from agent.network.publishing import resources
from qos import keys
from qos.bandwidth import Band, Limits
from qos.network.bands import Amount, Bands, Configuration
from qos.network.wanted import Link

UID = "7c6a6c1e-0d7a-4d8b-9a53-2f1d4c1b0a11"
ETH = Link(2, "eth0", 125_000_000, 125_000_000)
NOBODY = 65534


def koordinator(**strategy: object) -> str:
    selector = {"matchLabels": {"pool": "slow"}}
    slow = {"nodeSelector": selector, "totalNetworkBandwidth": "100M"}
    return json.dumps({"clusterStrategy": strategy, "nodeStrategies": [{**slow, "name": "slow"}]})


def test_without_a_folder_options_alone_count() -> None:
    base = Configuration(egress=Bands(host=Amount(percent=20)))
    configured = Configured(base)
    assert not configured.look({})
    assert configured.configuration == base
    assert resources(ETH, base) == {keys.EGRESS_BANDWIDTH: 1_000_000_000 * 73 // 100}


def test_bytes_and_bits_of_each_file_reach_the_plan(tmp_path: Path) -> None:
    (tmp_path / "system-config").write_text(koordinator(totalNetworkBandwidth="8G"))
    (tmp_path / "global_bps_config").write_text("offline_l2_tx_bps_min 1000000\n")
    (tmp_path / "pod.json").write_text(
        json.dumps([{"podUID": UID, "prio": 2, "qosConfig": {"egressBandwidth": 1000}}])
    )
    (tmp_path / "per_cgroup_bps_limit").write_text(f"/kubepods/pod{UID} tx_bps=2000 rx_bps=3000")
    configured = Configured(folder=tmp_path)
    assert configured.look({})
    found = configured.configuration
    assert (found.total_egress, found.total_ingress) == (1_000_000_000, 1_000_000_000), "bits of Koordinator"
    assert found.egress.share(Band.L2).minimum == Amount(rate=1_000_000), "bytes of terway-qos"
    said = configured.of_pod(UID)
    assert (said["pod.json"].band, said["pod.json"].limits) == (Band.L2, Limits(1000, None))
    assert said["per_cgroup_bps_limit"].limits == Limits(2000, 3000)
    assert configured.of_pod("another") == {}
    assert not configured.look({})
    assert configured.look({"pool": "slow"}), "its labels choose among nodeStrategies"
    assert configured.configuration.total_egress == 12_500_000


def test_what_has_not_changed_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "global_bps_config").write_text("hw_tx_bps_max 1000\n")
    configured = Configured(folder=tmp_path)
    assert configured.look({"pool": "slow"})
    with monkeypatch.context() as patched:
        patched.setattr("agent.network.configured.with_slo_controller_config", None)
        assert not configured.look({"pool": "slow"})
    assert not configured.look({}), "other labels are looked at, and say nothing here"


def test_node_json_is_preferred_as_by_terway(tmp_path: Path) -> None:
    (tmp_path / "global_bps_config").write_text("hw_tx_bps_max 1000\n")
    (tmp_path / "node.json").write_text('{"hw_tx_bps_max": 2000}')
    configured = Configured(folder=tmp_path)
    configured.look({})
    assert configured.configuration.total_egress == 2000


@pytest.mark.parametrize("broken", ["", "[" * 100_000], ids=["empty", "deep"])
def test_a_file_counts_when_it_is_whole_and_its_last_good_state_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    file = tmp_path / "pod.json"
    whole = [{"podUID": UID, "prio": 1}]
    file.write_text(json.dumps(whole))
    configured = Configured(folder=tmp_path)
    configured.look({})
    file.write_text(broken)
    assert not configured.look({}), "it may be half written"
    assert not configured.look({})
    assert configured.of_pod(UID)["pod.json"].band is Band.L1
    assert "pod.json" in configured.problems[0]
    assert "what it said before counts" in configured.problems[0]
    file.write_text(json.dumps([{"podUID": UID, "prio": 2}]))
    assert [configured.look({}), configured.look({})] == [False, True]
    assert (configured.of_pod(UID)["pod.json"].band, configured.problems) == (Band.L2, ())
    file.unlink()
    assert [configured.look({}), configured.look({})] == [False, True]
    assert configured.of_pod(UID) == {}
    assert len([one for one in caplog.messages if "not heeded" in one]) == 1


def test_what_of_a_file_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "global_bps_config").write_text("hw_tx_bps_max 10G\n")
    configured = Configured(folder=tmp_path)
    assert not configured.look({})
    [problem] = configured.problems
    assert "global_bps_config: line 1: 'hw_tx_bps_max 10G'" in problem


def test_keys_of_a_mounted_configmap_are_symlinks(tmp_path: Path) -> None:
    (tmp_path / "..2026_11_23").mkdir()
    (tmp_path / "..2026_11_23" / "system-config").write_text(koordinator(totalNetworkBandwidth="8M"))
    (tmp_path / "system-config").symlink_to("..2026_11_23/system-config")
    configured = Configured(folder=tmp_path)
    configured.look({})
    assert (configured.configuration.total_egress, configured.problems) == (1_000_000, ())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another's file")
@pytest.mark.parametrize("whose", ["file", "folder"])
def test_what_others_may_write_is_refused(tmp_path: Path, whose: str) -> None:
    file = tmp_path / "global_bps_config"
    file.write_text("hw_tx_bps_max 1000\n")
    os.chown(file if whose == "file" else tmp_path, NOBODY, NOBODY)
    configured = Configured(folder=tmp_path)
    assert not configured.look({})
    assert "owner" in configured.problems[0]
