"""CI's verdict: what may be run again, what a flaky test leads to, and what .ci/run says in its last line."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("verdict", ROOT / ".ci" / "verdict.py")
assert _SPEC is not None
assert _SPEC.loader is not None
verdict = sys.modules.setdefault("verdict", importlib.util.module_from_spec(_SPEC))
_SPEC.loader.exec_module(verdict)
Known, Result, Run, Stage = verdict.Known, verdict.Result, verdict.Run, verdict.Stage

A, B, C, D = (f"tests/cluster/test_a.py::test_{name}" for name in "abcd")


def stage(
    passed: int = 1, failed: tuple[str, ...] = (), skipped: int = 0, status: int | None = None
) -> Stage:
    results = {f"tests/x.py::test_{number}": Result("passed") for number in range(passed)}
    results |= {f"tests/x.py::test_s{number}": Result("skipped") for number in range(skipped)}
    results |= {test: Result("failed", "boom") for test in failed}
    return Stage(int(bool(failed)) if status is None else status, results)


def run(unit: Stage | None = None, cluster: Stage | None = None, status: int | None = None) -> Run:
    stages = {"unit": unit or stage(), "cluster": cluster or stage(), "machine": stage()}
    if status is None:
        status = 2 if any(one.status for one in stages.values()) else 0
    return Run(status, stages)


def test_the_stages_are_those_of_make_test():
    (recipe,) = re.findall(r"^test:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"call stage,(\w+),", recipe) == list(verdict.STAGES)


def test_the_list_of_flaky_tests_can_be_read_and_names_tests_that_exist():
    for test in verdict.read_known((ROOT / verdict.KNOWN).read_text()):
        file, *_, name = test.partition("[")[0].split("::")
        assert f"def {name}(" in (ROOT / file).read_text()


def test_what_all_passed_passes():
    decided = verdict.decide(run(unit=stage(9, skipped=2)), {}, {})
    assert decided.closing() == "11 passed, 0 failed, 2 skipped"
    assert not decided.lines


def test_a_unit_test_is_never_run_again():
    failed = run(unit=stage(failed=("tests/qos/test_q.py::test_q",)))
    assert failed.to_run_again() == []
    decided = verdict.decide(failed, {}, {})
    assert decided.closing() == "3 passed, 1 failed, 0 skipped"
    assert decided.lines == ["FAILED tests/qos/test_q.py::test_q"]


def test_a_test_that_passes_alone_is_flaky_and_the_run_passes():
    failed = run(cluster=stage(failed=(A,)))
    assert failed.to_run_again() == [A]
    decided = verdict.decide(failed, {A: Result("passed")}, {})
    assert decided.closing() == "4 passed, 0 failed, 0 skipped"
    assert decided.flaky == [A]
    assert "list it in tests/FLAKY.md" in decided.lines[0]


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_test_that_does_not_pass_alone_has_failed(outcome: str):
    decided = verdict.decide(run(cluster=stage(failed=(A,))), {A: Result(outcome)}, {})
    assert decided.closing() == "3 passed, 1 failed, 0 skipped"
    assert decided.lines == [f"FAILED {A} (run again, alone: {outcome})"]


def test_three_are_run_again_and_four_are_not():
    three, four = run(cluster=stage(failed=(A, B, C))), run(cluster=stage(failed=(A, B, C, D)))
    assert three.to_run_again() == [A, B, C]
    assert verdict.decide(three, dict.fromkeys([A, B, C], Result("passed")), {}).failed == 0
    assert four.to_run_again() == []
    assert verdict.decide(four, {}, {}).closing() == "3 passed, 4 failed, 0 skipped"


def test_a_test_seen_before_counts_as_failed_until_it_is_explained():
    failed, second = run(cluster=stage(failed=(A,))), {A: Result("passed")}
    seen = verdict.decide(failed, second, {A: Known("2026-11-01")})
    assert seen.closing() == "3 passed, 1 failed, 0 skipped"
    assert "2026-11-01" in seen.lines[0]
    explained = verdict.decide(failed, second, {A: Known("2026-11-01", "unknown", "Tried a slower disk.")})
    assert explained.closing() == "4 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Run(2, {}), "stage unit left no results"),
        (Run(0, {"unit": stage(), "cluster": stage()}), "stage machine left no results"),
        (run(cluster=Stage(5, {})), "stage cluster has no tests"),
        (run(cluster=stage(status=3)), "pytest ended with 3 in stage cluster"),
        (run(cluster=stage(failed=(A,), status=2)), "pytest ended with 2 in stage cluster"),
        (run(unit=stage(failed=(A,), status=0)), "pytest ended with 0 in stage unit"),
        (run(status=2), "make test ended with 2, no test failed"),
        (run(cluster=stage(failed=(A,)), status=0), "make test ended with 0, a test failed"),
    ],
)
def test_what_left_no_full_results_fails_though_every_test_passes_alone(broken: Run, said: str):
    decided = verdict.decide(broken, dict.fromkeys(broken.to_run_again(), Result("passed")), {})
    assert f"FAULT {said}" in decided.lines
    assert decided.failed >= 1


tests = st.sampled_from([A, B, C, D])
outcomes = st.sampled_from(["passed", "failed", "skipped"])


@given(
    unit=st.dictionaries(tests, outcomes, min_size=1),
    cluster=st.dictionaries(tests, outcomes, min_size=1),
    second=st.dictionaries(tests, outcomes, min_size=4),
    known=st.dictionaries(
        tests, st.sampled_from([Known("2026-11-01"), Known("2026-11-01", "known", "Why.")])
    ),
)
def test_a_run_passes_only_if_each_test_passed_once_and_what_was_flaky_is_new_or_explained(
    unit: dict[str, str], cluster: dict[str, str], second: dict[str, str], known: dict[str, Known]
):
    stages = {
        name: Stage(int("failed" in results.values()), {test: Result(one) for test, one in results.items()})
        for name, results in {
            "unit": unit,
            "cluster": cluster,
            "machine": {"tests/x.py::test_x": "passed"},
        }.items()
    }
    played = Run(max(one.status for one in stages.values()), stages)
    seconds = {test: Result(second[test]) for test in played.to_run_again()}
    decided = verdict.decide(played, seconds, known)
    chances = [test for test, outcome in cluster.items() if outcome == "failed"]
    assert (decided.failed == 0) == (
        "failed" not in unit.values()
        and len(chances) <= 3
        and all(second[test] == "passed" for test in chances)
        and all(known[test].explanation for test in chances if test in known)
    )
    total = decided.passed + decided.failed + decided.skipped
    assert total == len(unit) + len(cluster) + 1


ENTRY = f"# Flaky\n\n## {A}\n- seen: 2026-11-22\n"


def test_an_entry_is_read():
    assert verdict.read_known(ENTRY) == {A: Known("2026-11-22")}
    text = (
        ENTRY + "- cause: known\n- explanation: A slow disk.\n  Since 1.36.\n\n## tests/b.py::test_b[x y]\n"
    )
    assert verdict.read_known(text + "- seen: 2026-11-23\n") == {
        A: Known("2026-11-22", "known", "A slow disk. Since 1.36."),
        "tests/b.py::test_b[x y]": Known("2026-11-23"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("## test_a\n- seen: 2026-11-22\n", "no test's id"),
        (f"## {A}\n", "seen: YYYY-MM-DD"),
        (f"## {A}\n- seen: yesterday\n", "seen: YYYY-MM-DD"),
        (ENTRY + ENTRY.partition("\n\n")[2], "listed twice"),
        (ENTRY + "- cause: known\n", "belong together"),
        (ENTRY + "- explanation: So.\n", "belong together"),
        (ENTRY + "- cause: luck\n- explanation: So.\n", "known or unknown, not 'luck'"),
        (ENTRY + "- explanation:\n", ":5: '- explanation:'"),
        (ENTRY + "- seen: 2026-11-23\n", ":5: '- seen: 2026-11-23'"),
        (ENTRY + "It is the disk.\n", ":5: 'It is the disk.'"),
        (ENTRY + "  It is the disk.\n", ":5: '  It is the disk.'"),
    ],
)
def test_an_entry_that_is_not_as_the_file_says_is_an_error(text: str, said: str):
    with pytest.raises(ValueError, match=re.escape(said)):
        verdict.read_known(text)


def test_what_is_no_junit_file_is_an_error():
    with pytest.raises(ValueError, match="not a JUnit file"):
        verdict.read_results("<testsuites><testsuite>")


# From here on .ci/run itself, in a copy of what it needs, with a make that plays.

MAKE = """#!/bin/sh
[ "$1" = test-again ] && TEST="$TEST" exec {python} {folder}/play.py again
exec {python} {folder}/play.py test
"""
TESTS = """
import sys
import tomllib
from pathlib import Path

import pytest


class TestOf:
    @pytest.mark.parametrize("path", ["a/b.c", "x::y [z]"])
    def test_luck(self, path, request):
        print("said before it failed")
        been = Path("been-" + str(path == "a/b.c"))
        if not been.exists():
            been.touch()
            raise AssertionError("the first time")


def test_fine():
    pass


def test_skipped():
    pytest.skip("why not")
"""
PYTEST = """
import os, subprocess, sys

def pytest(name, *tests):
    file = f"build/tests/{name}.xml"
    argv = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    status = subprocess.run([*argv, f"--junit-xml={file}", *tests]).returncode
    open(f"build/tests/{name}.status", "w").write(str(status))
    return status

os.makedirs("build/tests", exist_ok=True)
if sys.argv[1] == "again":
    sys.exit(2 * pytest("again", os.environ["TEST"]))
statuses = [pytest("unit", "tests/test_unit.py"), pytest("cluster", "tests/test_luck.py"),
            pytest("machine", "tests/test_unit.py")]
sys.exit(2 * any(statuses))
"""


def copy(folder: Path, play: str, venv: bool = True) -> dict[str, str]:
    """A folder with what .ci/run needs, and the environment in which make is `play`."""
    for name in (".ci/run", ".ci/verdict.py", "tests/FLAKY.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    if venv:
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (folder / "bin").mkdir()
    (folder / "play.py").write_text(play)
    make = folder / "bin" / "make"
    make.write_text(MAKE.format(python=sys.executable, folder=folder))
    make.chmod(0o755)
    return os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def ci(folder: Path, environ: dict[str, str]) -> tuple[int, list[str]]:
    argv = [folder / ".ci" / "run"]
    done = subprocess.run(
        argv, cwd="/", env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.program
def test_ci_runs_again_what_failed_by_chance_keeps_its_log_and_passes(tmp_path: Path) -> None:
    environ = copy(tmp_path, PYTEST) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    junit = [f"{name} = {value}\n" for name, value in options.items() if name.startswith("junit")]
    assert junit
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + "".join(junit))
    (tmp_path / "tests" / "test_luck.py").write_text(TESTS)
    (tmp_path / "tests" / "test_unit.py").write_text("def test_unit():\n    pass\n")
    status, lines = ci(tmp_path, environ)
    assert (status, lines[-1]) == (0, "5 passed, 0 failed, 1 skipped")
    flaky = "tests/test_luck.py::TestOf::test_luck[a/b.c]"
    assert f"FLAKY {flaky} (failed, then passed alone; list it in tests/FLAKY.md)" in lines
    (log,) = [
        line.split()[1].rstrip(":") for line in lines if line.startswith("LOG") and line.endswith(flaky)
    ]
    assert "the first time" in (tmp_path / log).read_text()
    assert "said before it failed" in (tmp_path / log).read_text()

    with (tmp_path / "tests" / "FLAKY.md").open("a") as known:
        known.write(f"\n## {flaky}\n- seen: 2026-11-22\n")
    (tmp_path / "been-True").unlink()
    status, lines = ci(tmp_path, environ)
    assert (status, lines[-1]) == (1, "4 passed, 1 failed, 1 skipped")

    (tmp_path / "tests" / "FLAKY.md").write_text("## luck\n")
    status, lines = ci(tmp_path, environ)
    assert (status, lines[-1]) == (1, "5 passed, 1 failed, 1 skipped")
    assert any(line.startswith("FAULT tests/FLAKY.md:1: ") for line in lines)


@pytest.mark.parametrize("venv", [True, False])
def test_ci_ends_with_a_true_line_where_no_test_was_reached(tmp_path: Path, venv: bool) -> None:
    environ = copy(tmp_path, "print('E501 Line too long'); raise SystemExit(2)", venv)
    (tmp_path / "build" / "tests").mkdir(parents=True)
    (tmp_path / "build" / "tests" / "unit.xml").write_text("<of-another-run/>")
    status, lines = ci(tmp_path, environ)
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert not (tmp_path / "build" / "tests" / "unit.xml").exists()
