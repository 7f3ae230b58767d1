"""The owner of a cgroup, by the names that kubelet, containerd, CRI-O, podman and plain runtimes make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import membership
from kernel.refused import Gone, Refused

UID = "0a1b2c3d-1111-4222-8333-444455556666"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
ID = "d" * 64

PODS = [
    (f"/kubepods/pod{UID}/{ID}", "Guaranteed"),
    (f"/kubepods/burstable/pod{UID}/{ID}", "Burstable"),
    (f"/kubepods/besteffort/pod{UID}/{ID}", "BestEffort"),
    (f"/kubelet/kubepods/burstable/pod{UID}/{ID}", "Burstable"),
    (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", "Guaranteed"),
    (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/crio-{ID}.scope",
        "Burstable",
    ),
    (
        f"/kubelet.slice/kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        "BestEffort",
    ),
]

PLAIN = [
    f"/{ID}",
    f"/libpod_parent/libpod-{ID}",
    f"/machine.slice/libpod-{ID}.scope",
    f"/system.slice/docker-{ID}.scope",
    f"/user.slice/user-0.slice/crun-{ID}.scope",
    f"/pod{UID}/{ID}",
    f"/kubepods-pod/{ID}",
    f"/kubepods/pod{UID[:-1]}/{ID}",
    f"/kubepods/pod{UID.upper()}/{ID}",
    f"/kubepods/other/pod{UID}/{ID}",
    f"/x-pod{UNDERSCORED}.slice/{ID}",
    f"/kubepods/burstable/{ID}",
]


@pytest.mark.parametrize(("path", "qos"), PODS)
def test_pods(path: str, qos: str) -> None:
    assert membership.container_path(path, ID) == path
    assert (membership.pod_uid(path), membership.qos_class(path)) == (UID, qos)


@pytest.mark.parametrize("path", PLAIN)
def test_no_pods(path: str) -> None:
    assert membership.container_path(path, ID) == path
    assert (membership.pod_uid(path), membership.qos_class(path)) == ("", "Plain")


def test_static_pods() -> None:
    path = f"/kubepods/burstable/pod{STATIC}/{ID}"
    assert membership.pod_uid(path) == STATIC
    slices = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/crio-{ID}.scope"
    assert membership.pod_uid(slices) == STATIC


def test_a_node_in_a_container_shows_its_innermost_pod() -> None:
    inner = UID.replace("0a", "ff", 1)
    assert membership.pod_uid(f"/kubepods/pod{UID}/{ID}/kubepods/burstable/pod{inner}/x") == inner


@pytest.mark.parametrize("below", ["/container", "/supervisor/one", "/init.scope"])
def test_a_process_further_down_is_walked_up_to_its_container(below: str) -> None:
    path = f"/machine.slice/libpod-{ID}.scope"
    assert membership.container_path(path + below, ID) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "relative/" + ID, f"/a/../{ID}", f"/../{ID}", f"/./{ID}", f"/a//{ID}", f"/{ID}/"),
        *("/kubepods/podX", f"/{ID}x", f"/x{ID}", f"/{ID}.slice", f"/conmon-{ID}.service"),
    ],
)
def test_refused_paths(path: str) -> None:
    with pytest.raises(Refused):
        membership.container_path(path, ID)


def test_a_removed_cgroup_is_gone() -> None:
    with pytest.raises(Gone):
        membership.container_path(f"/{ID} (deleted)", ID)


@pytest.mark.parametrize("container_id", ["", ".", "..", "a/b", "a b", "a\n", "\0", "ä", "x" * 256])
def test_refused_ids(container_id: str) -> None:
    with pytest.raises(Refused):
        membership.container_path(f"/x/{container_id}", container_id)


def test_paths_of_every_hierarchy() -> None:
    text = "9:name=systemd:/s\n4:memory:/m\n2:cpu,cpuacct:/c:odd\n1::/none\n0::/u\ngarbage\n"
    found = membership.paths(text)
    assert found == {
        "name=systemd": "/s",
        "memory": "/m",
        "cpu": "/c:odd",
        "cpuacct": "/c:odd",
        "": "/u",
    }


COMPONENTS = st.sampled_from(
    ["", ".", "..", "kubepods", "burstable", f"pod{UID}", ID, f"crio-{ID}.scope", "kubepods.slice", "a"]
)


@given(st.lists(COMPONENTS | st.text(max_size=8), max_size=7).map(lambda parts: "/" + "/".join(parts)))
def test_an_answer_is_always_an_ancestor_that_holds_the_id(path: str) -> None:
    membership.pod_uid(path)
    try:
        found = membership.container_path(path, ID)
    except Refused:
        return
    assert path == found or path.startswith(found + "/")
    assert ID in found.rpartition("/")[2]
    assert ".." not in found.split("/")
