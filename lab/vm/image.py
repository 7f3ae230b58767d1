"""Prepares the VM's image once: root file system, kernel, initramfs. A minute, then it is in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from lab.only_one import Report, only_one
from lab.printed_lines import CommandFailedError, printed_lines
from lab.vm import recipe
from lab.vm.recipe import Image, VmError

INTRODUCTION = "Preparing the test VM from Debian's packages: about a minute, 160 MB, once. "


def provide(environ: Mapping[str, str], report: Report) -> Image:
    """The image from the cache, else prepared. Raises VmError, and leaves nothing behind then."""
    if missing := recipe.missing_commands(environ.get("PATH")):
        commands, packages = ", ".join(missing), " ".join(missing.values())
        raise VmError(
            f"the test VM needs {commands}: make test-kernel installs what is missing (as root, on Debian); "
            f"by hand: apt-get install --no-install-recommends {packages}"
        )
    folder = recipe.cache_folder(environ)
    if not folder.is_dir():
        waiting = "another preparation is under way; waiting for it"
        with only_one(folder.parent / ".lock", waiting, report):
            if not folder.is_dir():  # the one we waited for made it
                _prepare(folder, report)
    return Image(folder)


def _prepare(folder: Path, report: Report) -> None:
    """Make the image's folder, which appears only when it is whole."""
    if os.geteuid() != 0:
        raise VmError(
            "preparing the test VM's root file system needs root: run make test-kernel as root, once"
        )
    steps = (_make_root, _take_kernel, _make_initramfs, _squash)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".prepare-") as name:
        scratch, fresh = Path(name), Path(name) / "image"
        fresh.mkdir()
        for number, step in enumerate(steps):

            def tell(what: str, number: int = number) -> None:
                report(what, number, len(steps))

            step(scratch, fresh, tell)
        report("ready", len(steps), len(steps))
        fresh.rename(folder)


def _make_root(scratch: Path, _fresh: Path, tell: Callable[[str], None]) -> None:
    tell("installing packages")
    sources = scratch / "sources.list"
    sources.write_text("".join(f"{line}\n" for line in debian_sources()))
    argv = [
        *("mmdebstrap", "--variant=minbase", "--mode=root"),
        f"--include={','.join(recipe.ROOT_PACKAGES)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.LEFT_OUT),
        f"--customize-hook={recipe.GUEST / 'add-kernel'}",
        *(recipe.codename(), str(scratch / "root"), str(sources)),
    ]
    run(argv, tell, KERNEL_PACKAGE=recipe.KERNEL_PACKAGE)


def _take_kernel(scratch: Path, fresh: Path, tell: Callable[[str], None]) -> None:
    tell("taking the kernel")
    kernels = sorted((scratch / "root" / "boot").glob("vmlinuz-*"))
    if len(kernels) != 1:
        raise VmError(f"{recipe.KERNEL_PACKAGE} brought {len(kernels)} kernels, and one was expected")
    shutil.copy(kernels[0], fresh / "vmlinuz")
    shutil.rmtree(scratch / "root" / "boot")


def _make_initramfs(scratch: Path, fresh: Path, tell: Callable[[str], None]) -> None:
    tell("making the initramfs")
    root, tree = scratch / "root", scratch / "initramfs"
    (tree / "bin").mkdir(parents=True)
    (tree / "modules").mkdir()
    shutil.copy(root / "bin" / "busybox", tree / "bin" / "busybox")
    shutil.copy(recipe.GUEST / "initramfs-init", tree / "init")
    release = next((root / "usr" / "lib" / "modules").iterdir())
    modules = with_dependencies((release / "modules.dep").read_text(), recipe.INITRAMFS_MODULES)
    for module in modules:
        shutil.copy(release / module, tree / "modules")
    (tree / "modules" / "order").write_text("".join(f"{Path(module).name}\n" for module in modules))
    names = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
    with (fresh / "initramfs").open("wb") as out:
        argv = ["cpio", "--create", "--format=newc", "--quiet", "--owner=0:0"]
        subprocess.run(argv, cwd=tree, input=names.encode(), stdout=out, check=True)


def _squash(scratch: Path, fresh: Path, tell: Callable[[str], None]) -> None:
    tell("packing the root file system")
    argv = ["mksquashfs", str(scratch / "root"), str(fresh / "root.squashfs"), "-comp", "lz4", "-quiet"]
    run([*argv, "-no-progress"], lambda _: None)


def with_dependencies(modules_dep: str, wanted: Iterable[str]) -> list[str]:
    """Paths of the wanted modules and of all they need, in the order in which they can be loaded.

    modules_dep: depmod's file, `PATH: PATH ...` a line, a module's needs from the last to the first.
    Modules that are built into the kernel are not listed there, and are left out.
    """
    needs: dict[str, list[str]] = {}
    for line in modules_dep.splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    order: dict[str, None] = {}
    for name in wanted:
        if name in by_name:
            path = by_name[name]
            order.update(dict.fromkeys([*reversed(needs[path]), path]))
    return list(order)


def debian_sources() -> list[str]:
    """One-line apt sources: those of this machine that are Debian's own."""
    lines = _apt_lines()
    if not lines:  # the lists name the origin, and an image of a machine may come without them
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        lines = _apt_lines()
    if not lines:
        raise VmError(
            "apt knows no source of Debian's packages: check /etc/apt/sources.list, run apt-get update"
        )
    return lines


def _apt_lines() -> list[str]:
    form = "$(ORIGIN) deb $(REPO_URI) $(CODENAME) $(COMPONENT)"
    argv = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return [line.removeprefix("Debian ") for line in done.stdout.splitlines() if line.startswith("Debian ")]


def run(argv: Sequence[str], tell: Callable[[str], None], **environ: str) -> None:
    """Run a command, tell each line it prints; VmError with the last lines when it fails."""
    try:
        for line in printed_lines(argv, os.environ | environ):
            if line.startswith("I: "):
                tell(line[3:].strip().rstrip("."))
    except CommandFailedError as error:
        raise VmError(f"{argv[0]} {error}") from error
