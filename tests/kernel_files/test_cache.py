"""The hook's small files: taken whole, or refused with the reason."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import cache
from kernel.cache import CacheBad, CacheMiss
from qos.plan import settings

KEY = "0a1b2c3d-1111-4222-8333-444455556666"
ENTRIES = [
    (1, "raise", "memory.min", "67108864"),
    (0, "set", "cpu.weight", "79"),
    (0, "set", "io.max", "8:0 rbps=1048576 wbps=max"),
    (-1, "set", "oom_score_adj", "-997"),
]
CONTAINERS = {"web": ENTRIES, "*": [(0, "set", "cpu.idle", "1")], "empty": []}
NOW = 1000.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_what_is_written_is_read(folder: Path) -> None:
    cache.write(str(folder), KEY, 2000, CONTAINERS)
    assert cache.read(str(folder), KEY, "web", NOW)[1] == ENTRIES
    assert cache.read(str(folder), KEY, "other", NOW)[1] == CONTAINERS["*"]
    assert cache.read(str(folder), KEY, "*", NOW)[1] == CONTAINERS["*"]
    assert cache.read(str(folder), KEY, "empty", NOW)[1] == []
    assert [file.name for file in folder.iterdir()] == [KEY]
    status = (folder / KEY).stat()
    assert (status.st_mode & 0o7777, status.st_uid) == (0o600, os.geteuid())


def test_the_format_is_the_one_that_was_agreed(folder: Path) -> None:
    cache.write(str(folder), KEY, 0, {"web": ENTRIES[:2]})
    body = (
        f"j10ce\t1\t{KEY}\nuntil\t0\ncontainer\tweb\n1\traise\tmemory.min\t67108864\n0\tset\tcpu.weight\t79\n"
    )
    assert (folder / KEY).read_text() == f"{body}end\t{len(body)}\n"


def test_an_open_folder_will_do_and_stays_open(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        cache.write(fd, KEY, 0, CONTAINERS)
        assert cache.read(fd, KEY, "web", NOW)[1] == ENTRIES
        assert cache.remove(fd, KEY)
        assert not cache.remove(fd, KEY)
        os.fstat(fd)
    finally:
        os.close(fd)


def test_modes_are_those_of_the_plan() -> None:
    for mode in (settings.SET, settings.RAISE):
        cache.text(KEY, 0, {"*": [(0, mode, "cpu.weight", "1")]})
    cache.text(KEY, 0, {"*": [(settings.PROCESS, settings.SET, "oom_score_adj", "0")]})


def test_misses(folder: Path) -> None:
    with pytest.raises(CacheMiss, match="no such file"):
        cache.read(str(folder), KEY, "web", NOW)
    with pytest.raises(CacheMiss, match="no such file"):
        cache.read(str(folder / "missing"), KEY, "web", NOW)
    cache.write(str(folder), KEY, 0, {"web": ENTRIES})
    with pytest.raises(CacheMiss, match="has no container 'other'"):
        cache.read(str(folder), KEY, "other", NOW)
    with pytest.raises(CacheMiss, match="has no container"):
        cache.read(str(folder), KEY, "*", NOW)


def test_expiry(folder: Path) -> None:
    cache.write(str(folder), KEY, 1001, CONTAINERS)
    cache.read(str(folder), KEY, "web", 1000.9)
    with pytest.raises(CacheMiss, match="expired 0 s ago"):
        cache.read(str(folder), KEY, "web", 1001)
    with pytest.raises(CacheMiss, match="expired 99 s ago"):
        cache.read(str(folder), KEY, "web", 1100.2)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a\0", "x" * 254, "a b", "ä"])
def test_names_that_are_none(folder: Path, name: str) -> None:
    with pytest.raises(CacheMiss, match="not a name"):
        cache.read(str(folder), name, "web", NOW)
    with pytest.raises(CacheBad):
        cache.write(str(folder), name, 0, CONTAINERS)
    assert not cache.remove(str(folder), name)
    assert list(folder.iterdir()) == []


def test_every_truncation_is_refused() -> None:
    data = cache.text(KEY, 2000, CONTAINERS, "/a/b").encode()
    assert cache.parse(data, KEY) == (2000, "/a/b", CONTAINERS)
    for size in range(len(data)):
        with pytest.raises(CacheBad, match="truncated"):
            cache.parse(data[:size], KEY)


def test_every_lost_or_doubled_line_is_refused() -> None:
    lines = cache.text(KEY, 2000, CONTAINERS, "/a/b").encode().splitlines(keepends=True)
    for index in range(len(lines)):
        for count in (0, 2):
            changed = lines[:index] + lines[index : index + 1] * count + lines[index + 1 :]
            with pytest.raises(CacheBad):
                cache.parse(b"".join(changed), KEY)


@given(st.data())
def test_one_wrong_byte_never_crashes_and_never_yields_what_is_not_valid(data: st.DataObject) -> None:
    good = bytearray(cache.text(KEY, 2000, CONTAINERS, "/a/b").encode())
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        until, parent, containers = cache.parse(bytes(good), KEY)
    except CacheBad:
        return
    assert cache.text(KEY, until, containers, parent).encode() == bytes(good)


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(CacheBad):
        cache.parse(garbage, KEY)


def _file(*lines: str, key: str = KEY) -> bytes:
    body = "".join(f"{line}\n" for line in (f"j10ce\t1\t{key}", "until\t0", *lines))
    return f"{body}end\t{len(body)}\n".encode()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0\tset\tcpu.weight\t0", "not in 1 to 10000"),
        ("0\tset\tcpu.weight\t1 ", "not an integer"),
        ("0\tset\tcgroup.procs\t1", "not a file"),
        ("0\tset\t../cpu.weight\t1", "not a file"),
        ("0\tset\tcpu.weight", "not level, mode, file and value"),
        ("0\tset\tcpu.weight\t1\t", "not level, mode, file and value"),
        ("0\tSET\tcpu.weight\t1", "neither set nor raise"),
        ("-1\tset\tcpu.weight\t1", "not a level"),
        ("0\tset\toom_score_adj\t1", "not a level"),
        ("-2\tset\toom_score_adj\t1", "not a level"),
        ("00\tset\tcpu.weight\t1", "not a level"),
        ("99\tset\tcpu.weight\t1", "not a level"),
        ("container\tweb", "a second time"),
        ("container\t", "not a container's name"),
        ("container\ta/b", "not a container's name"),
        ("container\ta\tb", "not a container's name"),
        ("", "not level"),
        ("end\t5", "not level"),
    ],
)
def test_wrong_lines_are_named(line: str, why: str) -> None:
    with pytest.raises(CacheBad, match=f"line 4: {why}"):
        cache.parse(_file("container\tweb", line), KEY)


def test_wrong_frames() -> None:
    with pytest.raises(CacheBad, match="before the first container"):
        cache.parse(_file("0\tset\tcpu.weight\t1"), KEY)
    with pytest.raises(CacheBad, match="the file's name"):
        cache.parse(_file("container\tweb", key="other"), KEY)
    with pytest.raises(CacheBad, match="truncated, or changed"):
        cache.parse(_file("container\tweb") + b"0\tset\tcpu.weight\t1\n", KEY)
    with pytest.raises(CacheBad, match="truncated, or changed"):
        cache.parse(_file("container\tweb") + b"\n", KEY)
    with pytest.raises(CacheBad, match="'until' and seconds"):
        cache.parse(_file("container\tweb").replace(b"until\t0", b"until\tx"), KEY)
    with pytest.raises(CacheBad, match="line 1"):
        cache.parse(_file("container\tweb").replace(b"\t1\t", b"\t2\t"), KEY)


def test_the_parent_is_a_line_of_its_own(folder: Path) -> None:
    cache.write(str(folder), KEY, 0, {"web": ENTRIES[:1]}, "/machine.slice")
    body = (
        f"j10ce\t1\t{KEY}\nuntil\t0\nparent\t/machine.slice\ncontainer\tweb\n1\traise\tmemory.min\t67108864\n"
    )
    assert (folder / KEY).read_text() == f"{body}end\t{len(body)}\n"
    assert cache.read(str(folder), KEY, "web", NOW) == ("/machine.slice", ENTRIES[:1])


@pytest.mark.parametrize(
    "parent", ["/", "a/b", "/a/", "//a", "/a/../b", "/a/./b", "/a\tb", "/a\x7f", "/" + "a" * 4096]
)
def test_a_parent_that_is_no_cgroups_path(folder: Path, parent: str) -> None:
    with pytest.raises(CacheBad, match="line 3: not a cgroup's path"):
        cache.parse(_file(f"parent\t{parent}", "container\tweb"), KEY)
    with pytest.raises(CacheBad):
        cache.write(str(folder), KEY, 0, CONTAINERS, parent)
    assert list(folder.iterdir()) == []


def test_a_parent_is_named_once_and_first() -> None:
    with pytest.raises(CacheBad, match="line 3: not a cgroup's path"):
        cache.parse(_file("parent\t", "container\tweb"), KEY)
    with pytest.raises(CacheBad, match="line 3: a setting before the first container"):
        cache.parse(_file("parent", "container\tweb"), KEY)
    with pytest.raises(CacheBad, match="line 4: a setting before the first container"):
        cache.parse(_file("parent\t/a", "parent\t/a", "container\tweb"), KEY)
    with pytest.raises(CacheBad, match="line 4: not level"):
        cache.parse(_file("container\tweb", "parent\t/a"), KEY)
    assert cache.parse(_file("parent\t/a", "container\tweb"), KEY) == (0, "/a", {"web": []})


def _read(folder: Path) -> None:
    cache.read(str(folder), KEY, "web", NOW)


def test_a_file_that_others_may_open_or_own_is_refused(folder: Path) -> None:
    cache.write(str(folder), KEY, 0, CONTAINERS)
    for mode in (0o644, 0o620, 0o602, 0o601, 0o666):
        (folder / KEY).chmod(mode)
        with pytest.raises(CacheBad, match="mode 0600"):
            _read(folder)
    (folder / KEY).chmod(0o600)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(folder / KEY, 65534, 65534)
    with pytest.raises(CacheBad, match="owned by root"):
        _read(folder)


@pytest.mark.timeout(10)
def test_what_is_no_plain_file_is_refused(folder: Path) -> None:
    cache.write(str(folder), "real", 0, CONTAINERS)
    (folder / KEY).symlink_to(folder / "real")
    with pytest.raises(CacheBad, match="ELOOP"):
        _read(folder)
    (folder / KEY).unlink()
    (folder / KEY).mkdir(0o600)
    with pytest.raises(CacheBad, match="not a plain file"):
        _read(folder)
    (folder / KEY).rmdir()
    os.mkfifo(folder / KEY, 0o600)
    with pytest.raises(CacheBad, match="not a plain file"):
        _read(folder)


def test_a_linked_folder_is_refused(folder: Path) -> None:
    (folder / "real").mkdir(0o700)
    cache.write(str(folder / "real"), KEY, 0, CONTAINERS)
    (folder / "link").symlink_to(folder / "real")
    with pytest.raises(CacheBad):
        _read(folder / "link")


def test_too_large(folder: Path) -> None:
    many = {f"c{number}": ENTRIES for number in range(1000)}
    with pytest.raises(CacheBad, match="longer than 65536"):
        cache.write(str(folder), KEY, 0, many)
    (folder / KEY).write_bytes(b"\0" * (cache.LIMIT + 1))
    (folder / KEY).chmod(0o600)
    with pytest.raises(CacheBad, match="longer than 65536"):
        _read(folder)


@pytest.mark.parametrize(
    "containers",
    [
        {"a\tb": []},
        {"a\nend": []},
        {"": []},
        {"web": [(0, "set", "cpu.weight", "0")]},
        {"web": [(0, "set", "cpu.weight", "1\n0\tset\tcpu.idle\t1")]},
        {"web": [(0, "set\tcpu.weight", "1", "x")]},
        {"web": [(-1, "set", "cpu.weight", "1")]},
    ],
)
def test_nothing_is_written_that_could_not_be_read(
    folder: Path, containers: dict[str, list[cache.Entry]]
) -> None:
    cache.write(str(folder), KEY, 0, CONTAINERS)
    with pytest.raises(CacheBad):
        cache.write(str(folder), KEY, 0, containers)
    assert cache.read(str(folder), KEY, "web", NOW)[1] == ENTRIES
    assert [file.name for file in folder.iterdir()] == [KEY]
    with pytest.raises(CacheBad):
        cache.write(str(folder), KEY, -1, CONTAINERS)


def test_what_cannot_be_replaced_leaves_nothing_behind(folder: Path) -> None:
    (folder / KEY).mkdir()
    with pytest.raises(IsADirectoryError):
        cache.write(str(folder), KEY, 0, CONTAINERS)
    assert [file.name for file in folder.iterdir()] == [KEY]
    with pytest.raises(FileNotFoundError):
        cache.write(str(folder / "missing"), KEY, 0, CONTAINERS)


@pytest.mark.runtime
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system that is full")
def test_a_full_disk_leaves_the_old_file(folder: Path) -> None:
    full = folder / "full"
    full.mkdir()
    assert os.system(f"mount -t tmpfs -o size=8k,nr_inodes=4 none {full}") == 0
    try:
        cache.write(str(full), KEY, 0, {"web": ENTRIES})
        large = {f"c{number}": ENTRIES for number in range(100)}
        with pytest.raises(OSError, match="No space"):
            cache.write(str(full), KEY, 0, large)
        assert cache.read(str(full), KEY, "web", NOW)[1] == ENTRIES
        assert [file.name for file in full.iterdir()] == [KEY]
    finally:
        assert os.system(f"umount {full}") == 0


def test_a_reader_meets_a_whole_file_while_it_is_written(folder: Path) -> None:
    small, large = {"web": ENTRIES[:1]}, {"web": ENTRIES * 50}
    cache.write(str(folder), KEY, 0, small)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            cache.write(str(folder), KEY, 0, large)
            cache.write(str(folder), KEY, 0, small)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        seen = {len(cache.read(str(folder), KEY, "web", NOW)[1]) for _ in range(500)}
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert seen <= {1, 200}
    assert [file.name for file in folder.iterdir()] == [KEY]


def test_the_example_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernel.md").read_text()
    example = page[page.index("j10ce\t1\t") :].partition("```")[0].encode()
    assert cache.parse(example, KEY) == (86400, "", {"web": ENTRIES[:2]})


def test_what_is_promised_is_a_line_of_its_own_that_the_hook_passes_over(folder: Path) -> None:
    cache.write(str(folder), KEY, 0, {"web": ENTRIES[:1]}, "/machine.slice", promised=1500)
    text = (folder / KEY).read_text()
    assert text.startswith(
        f"j10ce\t1\t{KEY}\nuntil\t0\npromised\tcpu\t1500\nparent\t/machine.slice\ncontainer\t"
    )
    assert cache.read(str(folder), KEY, "web", NOW) == ("/machine.slice", ENTRIES[:1])
    assert cache.promised(text.encode(), KEY) == 1500
    cache.write(str(folder), KEY, 0, {"web": ENTRIES[:1]}, promised=1)
    assert cache.promised((folder / KEY).read_bytes(), KEY) == 1
    assert cache.promised(cache.text(KEY, 0, CONTAINERS).encode(), KEY) == 0


@pytest.mark.parametrize(
    "line",
    [
        "promised\tcpu\t0",
        "promised\tcpu\t-1",
        "promised\tcpu\t01",
        "promised\tcpu\tmany",
        "promised\tcpu\t1\t",
        "promised\tcpu\t" + "9" * 19,
        "promised\tmemory\t1",
        "promised\t",
    ],
)
def test_what_is_no_promise(line: str) -> None:
    for read in (cache.parse, cache.promised):
        with pytest.raises(CacheBad, match="line 3: not 'promised', cpu and millicores"):
            read(_file(line, "container\tweb"), KEY)


def test_a_promise_is_made_once_and_before_the_parent() -> None:
    good = "promised\tcpu\t1"
    with pytest.raises(CacheBad, match="line 4: a setting before the first container"):
        cache.parse(_file(good, good, "container\tweb"), KEY)
    with pytest.raises(CacheBad, match="line 4: a setting before the first container"):
        cache.parse(_file("parent\t/a", good, "container\tweb"), KEY)
    with pytest.raises(CacheBad, match="line 4: not a cgroup's path"):
        cache.parse(_file(good, "parent\ta", "container\tweb"), KEY)
    with pytest.raises(CacheBad):
        cache.text(KEY, 0, CONTAINERS, promised=-1)
