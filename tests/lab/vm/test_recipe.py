"""What names the image, and what is said when it cannot be made. Nothing is installed or booted."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from lab.vm import image, recipe
from lab.vm.recipe import VmError


def silent(_what: str, _done: int, _total: int) -> None: ...


def test_the_image_is_named_after_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe.digest("bookworm")
    assert recipe.digest("bookworm") == before
    assert recipe.digest("trixie") != before
    monkeypatch.setattr(recipe, "ROOT_PACKAGES", (*recipe.ROOT_PACKAGES, "vim"))
    assert recipe.digest("bookworm") != before


def test_scripts_that_are_baked_in_name_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = recipe.digest("bookworm")
    for script in ("initramfs-init", "add-kernel", "init"):
        (tmp_path / script).write_text((recipe.GUEST / script).read_text())
    monkeypatch.setattr(recipe, "GUEST", tmp_path)
    assert recipe.digest("bookworm") == before
    (tmp_path / "init").write_text("# comes with the payload, not with the image\n")
    assert recipe.digest("bookworm") == before
    (tmp_path / "add-kernel").write_text("# another\n")
    assert recipe.digest("bookworm") != before


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "codename", lambda: "bookworm")
    folder = recipe.cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder == tmp_path / "j10ce" / "vm" / recipe.digest("bookworm")
    assert recipe.cache_folder({"HOME": "/home/x"}).parent == Path("/home/x/.cache/j10ce/vm")


def test_another_system_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        platform, "freedesktop_os_release", lambda: {"ID": "fedora", "PRETTY_NAME": "Fedora 45"}
    )
    with pytest.raises(VmError, match="this is Fedora 45: run it on Debian"):
        recipe.codename()


def test_missing_commands_are_named_with_their_packages(tmp_path: Path) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(
        VmError, match=r"needs qemu-system-x86_64, mksquashfs, .*install .*squashfs-tools"
    ) as said:
        image.provide({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}, silent)
    assert "mmdebstrap" not in str(said.value)


def test_modules_come_after_what_they_need() -> None:
    modules_dep = (
        "kernel/lib/crc16.ko:\n"
        "kernel/fs/jbd2/jbd2.ko:\n"
        "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n"
        "kernel/drivers/virtio/virtio-blk.ko.xz: kernel/drivers/virtio/virtio.ko.xz\n"
        "kernel/drivers/virtio/virtio.ko.xz:\n"
    )
    order = image.with_dependencies(modules_dep, ("virtio_blk", "built_in", "ext4"))
    assert [Path(path).name for path in order] == [
        *("virtio.ko.xz", "virtio-blk.ko.xz"),
        *("crc16.ko", "jbd2.ko", "ext4.ko"),
    ]


def test_a_failed_preparation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_scratch: Path, fresh: Path, _tell: object) -> None:
        (fresh / "vmlinuz").write_text("")
        raise VmError("the mirror is away")

    monkeypatch.setattr(image, "_make_root", fail)
    monkeypatch.setattr(image.os, "geteuid", lambda: 0)
    monkeypatch.setattr(recipe, "missing_commands", lambda _path: {})
    monkeypatch.setattr(recipe, "codename", lambda: "bookworm")
    with pytest.raises(VmError, match="the mirror is away"):
        image.provide({"XDG_CACHE_HOME": str(tmp_path)}, silent)
    assert [path.name for path in (tmp_path / "j10ce" / "vm").iterdir()] == [".lock"]


def test_a_failed_program_is_told_with_its_last_lines() -> None:
    said: list[str] = []
    script = 'echo "I: downloading..."; echo "$REASON" >&2; exit 3'
    with pytest.raises(VmError, match=r"sh failed \(3\):\n[\s\S]*no space left"):
        image.run(["sh", "-c", script], said.append, REASON="no space left")
    assert said == ["downloading"]
