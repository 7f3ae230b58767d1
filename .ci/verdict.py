"""Says whether a run of `make test` passed, after it has run again what may have failed by chance.

A test of control planes, runtimes or the VM that failed is run once more, alone. If it passes then, it is
flaky: it is listed with its log, and the run passes, unless too many tests failed, or tests/FLAKY.md has seen
this one before and does not explain it. Unit tests, property tests and tests of whole programs are never run
again.

In the repository's folder, after `make test` ended with STATUS:

    .venv/bin/python -P .ci/verdict.py STATUS

Needs only the standard library. The last line is `N passed, N failed, N skipped`; the exit status is 0 or 1.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STAGES = {"unit": False, "cluster": True, "machine": True}
"""The stages of `make test`, in their order -> whether a test that failed there may be run again."""
MOST_AGAIN = 3
"""With more failures than this a run has failed: what fails that often is not luck."""
KNOWN = Path("tests/FLAKY.md")
RESULTS = Path("build/tests")

_ENTRY = re.compile(r"## (?P<test>tests/\S+\.py::\S.*)")
_FIELD = re.compile(r"- (?P<name>seen|cause|explanation): (?P<value>\S.*)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Result:
    """What one test came to: "passed", "failed" or "skipped". `log` is empty unless it failed."""

    outcome: str
    log: str = ""


@dataclass(frozen=True)
class Stage:
    """What one call of pytest left behind: its exit status, and test id -> result."""

    status: int
    results: Mapping[str, Result]


@dataclass(frozen=True)
class Run:
    """One `make test`: its exit status, and the stages that left results, by name."""

    status: int
    stages: Mapping[str, Stage]

    def failed(self, again: bool) -> list[str]:
        """The ids of the tests that failed in stages whose tests may (or may not) be run again."""
        return [
            test
            for name, stage in self.stages.items()
            for test, result in stage.results.items()
            if result.outcome == "failed" and STAGES[name] is again
        ]

    def to_run_again(self) -> list[str]:
        """The ids of the tests to run once more; none of them where too many failed."""
        failed = self.failed(again=True)
        return failed if len(failed) <= MOST_AGAIN else []


@dataclass(frozen=True)
class Verdict:
    """What a run came to. `lines` explain it; `flaky` are the tests that passed when they were run again."""

    passed: int
    failed: int
    skipped: int
    lines: Sequence[str] = ()
    flaky: Sequence[str] = ()

    def closing(self) -> str:
        """The last line of .ci/run."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_results(xml: str) -> dict[str, Result]:
    """Test id -> result, from pytest's JUnit file (family xunit1). ValueError if it is none.

    A test may stand there twice (it failed, and then its teardown did): it failed if it did once.
    """
    try:
        cases = ET.fromstring(xml).iter("testcase")  # noqa: S314 - our own pytest wrote it
    except ET.ParseError as error:
        raise ValueError(f"not a JUnit file: {error}") from error
    found: dict[str, Result] = {}
    for case in cases:
        test, result = _test_id(case), _result(case)
        if test not in found or result.outcome == "failed":
            found[test] = result
    return found


def _test_id(case: ET.Element) -> str:
    """What pytest takes on its command line: file, classes and name. The classes follow a dotted name."""
    file, dotted, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
    if not file.endswith(".py"):
        return name
    classes = dotted.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
    return "::".join([file, *filter(None, classes.split(".")), name])


def _result(case: ET.Element) -> Result:
    children = {child.tag: child for child in case}
    if "failure" in children or "error" in children:
        parts = [child.text for child in case if child.text]
        return Result("failed", "\n\n".join(parts))
    return Result("skipped" if "skipped" in children else "passed")


@dataclass(frozen=True)
class Known:
    """A test that was flaky before: when it was first seen, and what explains it ("" where nothing does)."""

    seen: str
    cause: str = ""
    explanation: str = ""


def read_known(text: str) -> dict[str, Known]:
    """Test id -> what tests/FLAKY.md says of it. ValueError names the line that is not as that file says."""
    entries: dict[str, dict[str, str]] = {}
    fields: dict[str, str] | None = None
    last = ""
    for number, line in enumerate(text.splitlines(), 1):
        entry, one = _ENTRY.fullmatch(line), _FIELD.fullmatch(line)
        if entry:
            if entry["test"] in entries:
                raise ValueError(f"{KNOWN}:{number}: {entry['test']} is listed twice")
            fields, last = entries.setdefault(entry["test"], {}), ""
        elif line.startswith("## "):
            raise ValueError(f"{KNOWN}:{number}: {line!r} is no test's id, such as tests/a/test_b.py::test_c")
        elif fields is None or not line.strip():
            continue
        elif one and one["name"] not in fields:
            last = one["name"]
            fields[last] = one["value"]
        elif last == "explanation" and line.startswith("  "):
            fields[last] += " " + line.strip()
        else:
            raise ValueError(f"{KNOWN}:{number}: {line!r} is none of seen, cause, explanation (each once)")
    return {test: _known(test, fields) for test, fields in entries.items()}


def _known(test: str, fields: Mapping[str, str]) -> Known:
    if not _DATE.fullmatch(fields.get("seen", "")):
        raise ValueError(f"{KNOWN}: {test}: `- seen: YYYY-MM-DD` is missing")
    if ("cause" in fields) != ("explanation" in fields):
        raise ValueError(f"{KNOWN}: {test}: cause and explanation belong together")
    if fields.get("cause", "known") not in ("known", "unknown"):
        raise ValueError(f"{KNOWN}: {test}: cause is known or unknown, not {fields['cause']!r}")
    return Known(**fields)


def faults(run: Run) -> list[str]:
    """Why this run cannot have passed, apart from tests that failed."""
    found = [f"stage {name} left no results" for name in STAGES if name not in run.stages]
    for name, stage in run.stages.items():
        failed = any(result.outcome == "failed" for result in stage.results.values())
        if not stage.results:
            found.append(f"stage {name} has no tests")
        elif stage.status != int(failed):
            found.append(f"pytest ended with {stage.status} in stage {name}")
    any_failed = bool(run.failed(again=True) or run.failed(again=False))
    if not found and bool(run.status) != any_failed:
        found.append(f"make test ended with {run.status}, {'a' if any_failed else 'no'} test failed")
    return found


def decide(
    run: Run, second: Mapping[str, Result], known: Mapping[str, Known], broken: Sequence[str] = ()
) -> Verdict:
    """The verdict on `run`. `second` is what `run.to_run_again()` came to, `broken` what else went wrong."""
    outcomes = [result.outcome for stage in run.stages.values() for result in stage.results.values()]
    broken, again = [*faults(run), *broken], run.failed(again=True)
    flaky = [test for test in again if test in second and second[test].outcome == "passed"]
    unexplained = [test for test in flaky if test in known and not known[test].explanation]
    lines = [f"FAULT {fault}" for fault in broken]
    lines += [f"FAILED {test}" for test in run.failed(again=False)]
    lines += [f"FAILED {test}" + _second(second.get(test)) for test in again if test not in flaky]
    lines += [f"FLAKY {test} (failed, then passed alone{_said(known.get(test))})" for test in flaky]
    if len(again) > MOST_AGAIN:
        lines.append(f"{len(again)} failed that may be run again, more than {MOST_AGAIN}: none was")
    failed = outcomes.count("failed") - len(flaky) + len(unexplained)
    return Verdict(
        passed=outcomes.count("passed") + len(flaky) - len(unexplained),
        failed=failed or int(bool(broken)),
        skipped=outcomes.count("skipped"),
        lines=lines,
        flaky=flaky,
    )


def _second(result: Result | None) -> str:
    return f" (run again, alone: {result.outcome})" if result else ""


def _said(known: Known | None) -> str:
    if known is None:
        return f"; list it in {KNOWN}"
    if not known.explanation:
        return f"; seen on {known.seen} already, and {KNOWN} does not explain it, so it counts as failed"
    return f"; cause {known.cause}, see {KNOWN}"


def _stage(name: str) -> Stage | None:
    try:
        status = int((RESULTS / f"{name}.status").read_text())
        return Stage(status, read_results((RESULTS / f"{name}.xml").read_text()))
    except (OSError, ValueError):
        return None


def _run_again(test: str) -> Result:
    """The outcome of `test`, run alone; "failed" too where it did not come to be run."""
    file = RESULTS / "again.xml"
    file.unlink(missing_ok=True)
    done = subprocess.run(["make", "test-again"], env=os.environ | {"TEST": test}, check=False)
    try:
        result = read_results(file.read_text()).get(test, Result("failed"))
    except (OSError, ValueError):
        return Result("failed")
    return Result("failed") if done.returncode and result.outcome == "passed" else result


def _keep_log(test: str, result: Result) -> str:
    """Keeps what the first failure left, and says where."""
    log = RESULTS / "again" / (re.sub(r"[^\w.-]+", "-", test) + ".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{test}\n\n{result.log}\n")
    return f"LOG {log}: the first failure of {test}"


def main(status: int) -> int:
    """Reads the results, runs again what may be, prints the verdict."""
    stages = {name: stage for name in STAGES if (stage := _stage(name))}
    run = Run(status, stages)
    firsts = {test: result for stage in stages.values() for test, result in stage.results.items()}
    logs, second = [], {}
    for test in run.to_run_again():
        logs.append(_keep_log(test, firsts[test]))
        print(f"\nrunning again, alone: {test}", flush=True)
        second[test] = _run_again(test)
    known, broken = {}, []
    try:
        known = read_known(KNOWN.read_text())
    except (OSError, ValueError) as error:
        broken.append(str(error))
    verdict = decide(run, second, known, broken)
    print("", *verdict.lines, *logs, verdict.closing(), sep="\n", flush=True)
    return int(verdict.failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
