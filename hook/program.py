"""What the hook does, once a container: read its state, find its settings, write them, say how it ended.

One process, one thread, no child: the runtimes kill only the process they started, and runc waits for whoever
holds its pipes. It needs no signal, so the mask that crun leaves (nearly all blocked) stays as it is: what
ends us is SIGKILL, which none can block, and our own budget.
"""

import posix
import time

from hook import config, decision, markers, process, state
from hook.config import Config
from hook.decision import Subject
from kernel import apply, cache, lock, target
from kernel.cache import CacheBad, CacheMiss, Entry
from kernel.change import SET, Change
from kernel.refused import Refused
from kernel.target import Target
from kernel.values import SAME

STDIN = 0
ANY_CONTAINER = "*"


class Outcome:
    """What came of one container. problems: what failed; missed: why it has not its own settings, or "".

    unnoted: why the reconciler does not learn what was overwritten, or ""; no reason not to start.
    """

    __slots__ = ("container_id", "missed", "problems", "subject", "unnoted")

    def __init__(self) -> None:
        self.container_id = ""
        self.subject = Subject({})
        self.problems: list[str] = []
        self.missed = ""
        self.unnoted = ""


def main(run: str, config_path: str, stdin: int = STDIN, proc: str = "/proc") -> int:
    """The hook's exit code: 0, or 1 when the container must not start. A line on stderr for what failed.

    run: folder of the precomputed settings, markers and lock. config_path: the administrator's settings.
    Rootless containers are not served, and start without a word.
    """
    if not process.is_roots(proc):
        return _stand_aside(stdin, proc)
    settings, note = _settings(config_path)
    outcome = Outcome()
    try:
        _serve(run, settings, process.deadline(proc, settings.budget), stdin, proc, outcome)
    except Refused as refused:
        outcome.problems.append(str(refused))
    except Exception as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    return _end(run, settings, note, outcome)


def _stand_aside(stdin: int, proc: str) -> int:
    """Read the state all the same: crun dies of SIGPIPE when nobody does."""
    try:  # noqa: SIM105 - contextlib is not for the hook
        state.read(stdin, process.deadline(proc, Config().budget))
    except Refused:
        pass
    return 0


def _settings(path: str) -> "tuple[Config, str]":
    try:
        return config.read(path), ""
    except Refused as refused:
        return Config(), f"{refused}: the defaults hold (fail open)"


def _serve(run: str, settings: Config, deadline: float, stdin: int, proc: str, outcome: Outcome) -> None:
    given = state.parse(state.read(stdin, deadline))
    outcome.container_id = given.id
    outcome.subject = decision.unplaced(given, settings)
    with target.from_pid(given.pid, given.id, proc) as found:
        subject = outcome.subject = decision.identify(given, found.cgroup, settings)
        if subject.sandbox:
            return
        if subject.problem:
            outcome.problems.append(subject.problem)
        entries = _placed(found, _entries(run, outcome), outcome)
        if decision.judge(subject, settings, outcome.problems, outcome.missed).code:
            return  # it does not start: nothing shared is raised for it
        if time.monotonic() > deadline:
            raise Refused("the budget was used up before its settings were written")
        if any(mode == "raise" for _, mode, _, _ in entries):
            lock.take(run, deadline)
        done = apply.apply(found, entries, deadline, lambda changes: _leave_found(run, outcome, changes))
        outcome.problems += [str(refusal) for refusal in done.refusals]


def _leave_found(run: str, outcome: Outcome, changes: "list[Change]") -> None:
    """What kubelet wrote into the pod's cgroup: once it is overwritten nobody can tell."""
    lines = [
        f"{change.group.name}\t{change.file}\t{change.before}\n"
        for change in changes
        if change.level == 1 and change.mode == SET and change.direction != SAME
    ]
    if lines and outcome.subject.pod_uid:
        outcome.unnoted = markers.leave(run, outcome.subject.pod_uid, "".join(lines), markers.FOUND)


def _placed(found: Target, given: "tuple[str, list[Entry]]", outcome: Outcome) -> "list[Entry]":
    """The settings, without those of cgroups that they were not planned for."""
    planned, entries = given
    if all(level <= 0 for level, _, _, _ in entries):
        return entries
    why = decision.misplaced(outcome.subject, found.parents(), planned)
    if not why:
        return entries
    outcome.problems.append(why)
    return [entry for entry in entries if entry[0] <= 0]


def _entries(run: str, outcome: Outcome) -> "tuple[str, list[Entry]]":
    """The container's settings, or on a miss those of its class, which may be none; and their parent."""
    subject = outcome.subject
    now = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    if subject.folder:
        try:
            return cache.read(f"{run}/{subject.folder}", subject.key, subject.container, now)
        except (CacheMiss, CacheBad) as miss:
            outcome.missed = str(miss)
            # A floor that is named and not there is no mere miss, nor is a file that cannot be trusted.
            if subject.folder == "floors" or isinstance(miss, CacheBad):
                outcome.problems.append(outcome.missed)
    if subject.namespace and _is_there(f"{run}/{cache.OPTED_OUT}/{subject.namespace}"):
        return "", []
    try:
        return cache.read(f"{run}/defaults", subject.qos, ANY_CONTAINER, now)
    except CacheMiss:
        return "", []
    except CacheBad as bad:
        outcome.problems.append(str(bad))
        return "", []


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _end(run: str, settings: Config, note: str, outcome: Outcome) -> int:
    """Leave the marker, say the line, answer the exit code."""
    verdict = decision.judge(outcome.subject, settings, outcome.problems, outcome.missed)
    line = verdict.line
    if verdict.missed and outcome.container_id:
        name = decision.marker_name(outcome.subject, outcome.container_id)
        text = decision.marker(outcome.subject, outcome.container_id, verdict.missed)
        unmarked = markers.leave(run, name, text)
        if unmarked:
            line = f"{line}; {unmarked}" if line else unmarked
    line = "; ".join([part for part in (note, line, outcome.unnoted) if part])
    if line:
        known = f"container {outcome.container_id}: " if outcome.container_id else ""
        process.say(decision.one_line(known + line))
    return verdict.code
