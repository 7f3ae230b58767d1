"""What the rigs decide without a runtime: where cgroups are, what a bundle and an image hold, what failed."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

from lab.runtimes import bundle, cgroups, containerd, images, programs
from lab.runtimes.bundle import Spec
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Handler, Options
from lab.runtimes.programs import RuntimesError

HYBRID = """\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:7 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_hierarchies() -> None:
    root = Path("/sys/fs/cgroup")
    assert cgroups.hierarchies(HYBRID) == {
        "": root / "unified",
        "name=systemd": root / "systemd",
        "cpu": root / "cpu,cpuacct",
        "cpuacct": root / "cpu,cpuacct",
        "memory": root / "memory",
    }
    assert cgroups.hierarchies(UNIFIED) == {"": root}
    assert not cgroups.is_v2(cgroups.hierarchies(HYBRID))
    assert cgroups.is_v2(cgroups.hierarchies(UNIFIED))


def test_places_below_a_scratch_cgroup() -> None:
    scratch = Scratch("/s", cgroups.hierarchies(HYBRID))
    assert scratch.path("a", "b") == "/s/a/b"
    assert scratch.folder("memory", "a") == Path("/sys/fs/cgroup/memory/s/a")
    assert len(scratch.folders("a")) == 4  # cpu and cpuacct are one hierarchy
    unified = Scratch("/s", cgroups.hierarchies(UNIFIED))
    assert unified.folder("memory") == Path("/sys/fs/cgroup/s")
    with pytest.raises(RuntimesError, match="no cgroup hierarchy has the controller 'rdma'"):
        Scratch("/s", {"cpu": Path("/c")}).folder("rdma")


def test_a_bundle(tmp_path: Path) -> None:
    hook = {"path": "/bin/true"}
    spec = Spec(("cat", "x"), {"createRuntime": [hook]}, {"a": "b"}, {"cpu": {"shares": 2}}, "/s/c")
    document = json.loads((bundle.make(tmp_path, tmp_path, spec) / "config.json").read_text())
    assert document["process"]["args"] == ["cat", "x"]
    assert document["hooks"] == {"createRuntime": [hook]}
    assert document["annotations"] == {"a": "b"}
    assert document["linux"]["cgroupsPath"] == "/s/c"
    assert document["linux"]["resources"]["cpu"] == {"shares": 2}
    assert document["root"] == {"path": str(tmp_path), "readonly": True}


def test_a_docker_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "busybox"
    program.write_text("a program")
    monkeypatch.setattr("lab.runtimes.rootfs.require", lambda _name: program)
    with tarfile.open(images.archive(tmp_path / "images.tar")) as tar:
        files = {name: content.read() for name in tar.getnames() if (content := tar.extractfile(name))}
    manifest = json.loads(files["manifest.json"])
    assert [image["RepoTags"] for image in manifest] == [[images.BUSYBOX], [images.PAUSE]]
    (layer,) = {layer for image in manifest for layer in image["Layers"]}
    digest = f"sha256:{hashlib.sha256(files[layer]).hexdigest()}"
    for image in manifest:
        assert json.loads(files[image["Config"]])["rootfs"]["diff_ids"] == [digest]
    with tarfile.open(fileobj=io.BytesIO(files[layer])) as tar:
        assert tar.getmember("bin/sh").linkname == "busybox"


def test_containerds_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.runtimes.containerd.require", lambda name: Path("/bin") / name)
    handlers = {"j10ce": Handler(Path("/spec.json"), ("j10ce.io/*",))}
    text = containerd.config(tmp_path, Options(handlers))
    assert text.count("BinaryName = '/bin/runc'") == 2
    assert "base_runtime_spec = '/spec.json'" in text
    assert 'pod_annotations = ["j10ce.io/*"]' in text


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_options: None)
    with pytest.raises(RuntimesError, match=r"busybox is missing: `make runtimes` .*busybox-static"):
        programs.require("busybox")


def test_a_failed_program_is_quoted() -> None:
    script = "import sys; print('said on stdout'); sys.stderr.write('the reason'); sys.exit(3)"
    done = programs.run([sys.executable, "-c", script])
    assert (done.code, done.stdout) == (3, "said on stdout\n")
    with pytest.raises(RuntimesError, match="ended with 3: the reason"):
        done.succeeded()


def test_a_program_without_end() -> None:
    with pytest.raises(RuntimesError, match=r"did not end within 0\.2 s"):
        programs.run([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)
