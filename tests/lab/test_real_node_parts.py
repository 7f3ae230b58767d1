"""What can be said of a real node without starting one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import cluster as lab_cluster
from lab import kwok
from lab.binaries import NAMES, Binaries
from lab.node import mounts, remains, settings
from lab.node.settings import Access, Programs, Settings
from lab.nodes import REAL

FOLDER = Path("/state/nodes/real-1")


def wanted(**options: object) -> Settings:
    programs = Programs(Path("/node"), Path("/kubelet"), Path("/usr/sbin/runc"))
    pki = (Path("/pki/ca.crt"), Path("/pki/admin.crt"), Path("/pki/admin.key"))
    return Settings("real-1", programs, Access("https://127.0.0.1:1", *pki), **options)  # type: ignore[arg-type]


def test_controllers_of_one_hierarchy_are_mounted_together() -> None:
    both = Path("/sys/fs/cgroup/cpu,cpuacct")
    found = {
        "cpu": both,
        "cpuacct": both,
        "name=systemd": Path("/sys/fs/cgroup/systemd"),
        "": Path("/sys/fs/cgroup/unified"),
    }
    steps = mounts.steps("real-1", FOLDER, found)
    assert ["mount", "-t", "cgroup", "-o", "cpu,cpuacct", "cgroup", str(both)] in steps
    assert ["symlink", "cpu,cpuacct", "/sys/fs/cgroup/cpu"] in steps
    assert ["mount", "-t", "cgroup", "-o", "none,name=systemd", "cgroup", "/sys/fs/cgroup/systemd"] in steps
    assert ["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup/unified"] in steps
    assert not [step for step in steps if step[0] == "symlink" and "systemd" in step[1]]


def test_the_unified_hierarchy_alone_is_one_mount() -> None:
    steps = mounts.steps("real-1", FOLDER, {"": Path("/sys/fs/cgroup")})
    assert [step for step in steps if step[-1].startswith("/sys/fs/cgroup")] == [
        ["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]
    ]


def test_no_sysctl_of_the_machine_is_within_reach() -> None:
    steps = mounts.steps("real-1", FOLDER, {"": Path("/sys/fs/cgroup")})
    covered = {step[3]: Path(step[2]) for step in steps if step[-1].startswith("/proc/sys/")}
    assert set(covered) == {f"/proc/sys/{name}" for name in mounts.SYSCTLS}
    written = mounts.sysctl_files(FOLDER)
    assert {written[file].strip() for file in covered.values()} == set(mounts.SYSCTLS.values())


def test_nothing_is_written_where_the_machine_would_see_it() -> None:
    steps = mounts.steps("real-1", FOLDER, {"": Path("/sys/fs/cgroup")})
    private = [step[-1] for step in steps if step[:2] == ["mount", "-t"]] + list(mounts.STATE.values())
    for path in settings.files(wanted()):
        assert [one for one in private if path.startswith(f"{one}/")], path


def test_kubelet_acts_as_its_node() -> None:
    files = settings.files(wanted())
    document = json.loads(files[str(settings.KUBELET_KUBECONFIG)])
    assert document["users"][0]["user"]["as"] == "system:node:real-1"
    assert document["users"][0]["user"]["as-groups"] == ["system:nodes"]
    argv = settings.kubelet_argv(wanted(labels={"zone": "a"}), "198.18.0.2")
    assert argv[0] == "/kubelet/kubelet"
    assert f"--node-labels={REAL}=true,zone=a" in argv
    assert "--node-ip=198.18.0.2" in argv


def test_kubelets_fields_can_be_chosen() -> None:
    files = settings.files(wanted(kubelet={"cpuManagerPolicy": "static", "maxPods": 7}))
    document = json.loads(files[str(settings.KUBELET)])
    assert (document["cpuManagerPolicy"], document["maxPods"], document["cgroupDriver"]) == (
        "static",
        7,
        "cgroupfs",
    )
    assert document["authentication"]["anonymous"] == {"enabled": False}


@pytest.mark.parametrize("at", [".", "nodes/real-1"])
def test_what_is_left_is_found_from_the_clusters_folder_and_the_nodes(tmp_path: Path, at: str) -> None:
    record = tmp_path / at / remains.RECORD
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("half a rec")
    assert remains.records(tmp_path) == [record]
    remains.remove(tmp_path)  # it had no cgroup yet


def test_kwokctl_gets_the_first_argument_of_each_component_first() -> None:
    ports = dict.fromkeys(lab_cluster._PORT_NAMES, 1)
    binaries = Binaries({name: Path("/bin") / name for name in NAMES}, "test")
    argv = kwok.create_argv(Path("/state/one"), ports, binaries, {}, qps_limits=False, seconds=90)
    extra = [argv[place + 1].partition("=")[0] for place, word in enumerate(argv) if word == "--extra-args"]
    distinct = len(set(extra))
    assert len(set(extra[:distinct])) == distinct
    assert f"kwok-controller=manage-nodes-with-label-selector=!{REAL}" in argv
