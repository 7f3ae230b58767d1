"""Names and weights of cgroups, as kubelet, podman and runc make them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.plan import layout
from qos.plan.layout import Driver

UID = "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ab"

POD_SLICE = "3c0f1d2e_aaaa_4bbb_8ccc_0123456789ab.slice"
BURSTABLE_POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_SLICE}"

PATHS = {
    ("Guaranteed", Driver.CGROUPFS): ["/kubepods", f"/kubepods/pod{UID}", f"/kubepods/pod{UID}/c1"],
    ("BestEffort", Driver.CGROUPFS): [
        "/kubepods",
        "/kubepods/besteffort",
        f"/kubepods/besteffort/pod{UID}",
        f"/kubepods/besteffort/pod{UID}/c1",
    ],
    ("Guaranteed", Driver.SYSTEMD): [
        "/kubepods.slice",
        f"/kubepods.slice/kubepods-pod{POD_SLICE}",
        f"/kubepods.slice/kubepods-pod{POD_SLICE}/cri-containerd-c1.scope",
    ],
    ("Burstable", Driver.SYSTEMD): [
        "/kubepods.slice",
        "/kubepods.slice/kubepods-burstable.slice",
        BURSTABLE_POD,
        f"{BURSTABLE_POD}/cri-containerd-c1.scope",
    ],
}

# shares, what kubelet writes, what runc 1.3.2 and newer write; the last by upstream's function, run with Go.
WEIGHTS = [
    (2, 1, 1),
    (3, 1, 2),
    (10, 1, 4),
    (102, 4, 17),
    (204, 8, 29),
    (512, 20, 59),
    (1024, 39, 100),
    (1025, 40, 101),
    (2048, 79, 174),
    (4096, 157, 303),
    (131072, 5000, 5478),
    (262144, 10000, 10000),
]


@pytest.mark.parametrize(("qos", "driver"), PATHS)
def test_paths_of_kubelet(qos: str, driver: Driver) -> None:
    assert list(layout.kubelet_paths(qos, UID, "c1", driver)) == PATHS[qos, driver]


def test_cri_o_names_its_containers_itself() -> None:
    assert layout.kubelet_paths("Guaranteed", UID, "c1", runtime="cri-o")[-1].endswith("/crio-c1.scope")
    assert layout.kubelet_paths("Guaranteed", UID, "c1", Driver.CGROUPFS, "cri-o")[-1].endswith("/crio-c1")


def test_paths_of_podman_and_plain_runtimes() -> None:
    assert layout.podman_paths("c1") == ("/machine.slice", "/machine.slice/libpod-c1.scope")
    assert layout.podman_paths("c1", Driver.CGROUPFS) == ("/libpod_parent", "/libpod_parent/libpod-c1")
    assert layout.podman_paths("c1", Driver.CGROUPFS, "/a/b")[-1] == "/a/b/libpod-c1"
    assert layout.plain_paths("c1") == ("/c1",)
    assert layout.plain_paths("c1", "a") == ("/a", "/a/c1")


@given(
    st.sampled_from(["Guaranteed", "Burstable", "BestEffort"]),
    st.sampled_from(Driver),
    st.sampled_from(["containerd", "cri-o"]),
)
def test_each_level_is_below_the_one_before(qos: str, driver: Driver, runtime: str) -> None:
    paths = layout.kubelet_paths(qos, UID, "c1", driver, runtime)
    assert all(below.startswith(f"{above}/") for above, below in pairwise(paths))
    assert all(below.removeprefix(above).count("/") == 1 for above, below in pairwise(paths))


@pytest.mark.parametrize(("shares", "kubelet", "runtime"), WEIGHTS)
def test_weights_as_upstream_converts(shares: int, kubelet: int, runtime: int) -> None:
    assert layout.kubelet_weight(shares) == kubelet
    assert layout.runtime_weight(shares) == runtime


def test_shares_as_kubelet_converts() -> None:
    asked = [0, 1, 100, 200, 1000, 300_000]
    assert [layout.shares(millicores) for millicores in asked] == [2, 2, 102, 204, 1024, 262_144]


@given(st.integers(2, layout.MOST_SHARES - 1))
def test_more_shares_never_weigh_less(shares: int) -> None:
    for convert in (layout.kubelet_weight, layout.runtime_weight):
        assert 1 <= convert(shares) <= convert(shares + 1) <= layout.MOST_WEIGHT


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/kubepods/burstable/podX/abc", "/kubepods/burstable/podX/abc"),
        (
            "kubepods-burstable-podX.slice:cri-containerd:abc",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice/cri-containerd-abc.scope",
        ),
        ("machine.slice:libpod:abc", "/machine.slice/libpod-abc.scope"),
        (":runc:abc", "/system.slice/runc-abc.scope"),
        ("-.slice:runc:abc", "/runc-abc.scope"),
        ("/a/../b", ""),
        ("a/b", ""),
        ("", ""),
        ("one:two", ""),
    ],
)
def test_where_a_spec_puts_its_container(written: str, path: str) -> None:
    assert layout.runtime_path(written) == path
