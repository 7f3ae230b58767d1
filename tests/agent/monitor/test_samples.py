"""The kernel's texts as numbers; the texts are those of real kernels, shortened."""

from __future__ import annotations

import pytest

from agent.monitor import samples

V2_CPU = (
    b"usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n"
    b"nr_periods 9\nnr_throttled 3\nthrottled_usec 1500\n"
)
PRESSURE = (
    b"some avg10=12.50 avg60=1.00 avg300=0.10 total=1234567\n"
    b"full avg10=2.00 avg60=0.00 avg300=0.00 total=34567\n"
)
V1_MEMORY = (
    b"cache 1\nrss 2\ntotal_cache 4096\ntotal_rss 8192\n"
    b"total_workingset_refault_anon 3\ntotal_workingset_refault_file 4\n"
)
V2_MEMORY = b"anon 8192\nfile 4096\nworkingset_refault_anon 3\nworkingset_refault_file 4\npgscan 99\n"
OLD_V2_MEMORY = b"anon 8192\nfile 4096\nworkingset_refault 7\n"


def test_a_number_is_found_by_its_whole_name() -> None:
    assert samples.named(V2_CPU, b"usage_usec ") == 2_500_000
    assert samples.named(V2_CPU, b"throttled_usec ") == 1500
    assert samples.named(V2_CPU, b"burst_usec ") == 0


def test_pressure() -> None:
    assert samples.stalled(PRESSURE) == pytest.approx(1.234567)
    assert samples.stalled_fully(PRESSURE) == pytest.approx(0.034567)
    assert samples.stalled_fully(PRESSURE.split(b"full")[0]) is None
    assert samples.pressure(PRESSURE) == samples.Pressure(0.125, 0.02, 1.234567, 0.034567)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        (b"max 100000\n", None),
        (b"5000 100000\n", 0.05),
        (b"-1\n 100000\n", None),
        (b"40000\n 20000\n", 2),
        (b"", None),
    ],
)
def test_limits(text: bytes, cpus: float | None) -> None:
    assert samples.limit(text) == cpus


def test_pressure_of_a_kernel_that_has_no_full_line_for_the_cpu() -> None:
    assert samples.pressure(PRESSURE.split(b"full")[0]) == samples.Pressure(0.125, 0.0, 1.234567, 0.0)


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        (b"254:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=900 dios=1\n8:0 rbytes=1 wbytes=2\n", (11, 22)),
        (
            b"254:0 Read 10\n254:0 Write 20\n254:0 Sync 5\n254:0 Async 25\n254:0 Total 30\nTotal 30\n",
            (10, 20),
        ),
        (b"8:0\n", (0, 0)),
        (b"", (0, 0)),
    ],
)
def test_bytes_of_disks(text: bytes, moved: tuple[int, int]) -> None:
    assert samples.transferred(text) == moved


def test_details_are_the_same_of_v1_and_v2() -> None:
    events = b"low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n"
    v2 = samples.detail(7.0, V2_MEMORY, events, b"8:0 rbytes=1 wbytes=2\n", unified=True)
    v1 = samples.detail(7.0, V1_MEMORY, None, b"8:0 Read 1\n8:0 Write 2\n", unified=False)
    assert (v2.anonymous, v2.file, v2.refaults, v2.read, v2.written) == (8192, 4096, 7, 1, 2)
    assert (v2.scanned, v2.oom_kills) == (99, 1)
    assert v1 == samples.MemoryDetail(7.0, 8192, 4096, 7, None, None, 1, 2)
    assert samples.detail(7.0, OLD_V2_MEMORY, None, b"", unified=True).refaults == 7


def test_the_machine() -> None:
    stat = b"cpu  100 10 50 1000 40 5 5 20 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nprocs_running 3\n"
    assert samples.cpu_times(stat) == (1.7, 10.4, 0.2)
    assert samples.meminfo(b"MemTotal:  8 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\nHugePages_Total: 0\n") == (
        8192,
        4096,
    )
    assert samples.paged(b"nr_free_pages 3\npgpgin 5\npgpgout 6\npgpgouty 9\n") == (5120, 6144)
