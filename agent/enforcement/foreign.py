"""What a look at a kernel file says of what others want there. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from agent.enforcement.originals import Record
from agent.enforcement.places import higher, same
from agent.enforcement.writers import AGENT, ENDED, KUBELET, OTHER, SYSTEMD, UNTOLD, WRITERS
from qos.plan.controller import all_files

NEW: Final = {name: file.fresh for name, file in all_files().items() if file.fresh}
"""What a new cgroup has, in files that by default neither kubelet nor a runtime writes."""


class Look(NamedTuple):
    """A file was read. `have`: what it says; `want`: what we planned; `after`: what it will hold.

    `own`: it is in a container's own cgroup, which runtimes write; `shared`: others than our containers need
    it, and the hook raises it, too; `writer`: one of writers.WRITERS, ENDED, UNTOLD or UNSEEN.
    """

    file: str
    have: str
    want: str
    after: str
    own: bool
    shared: bool
    writer: str


def seen(record: Record | None, look: Look, first_looks: bool = True) -> Record:
    """What is known after a look. first_looks: whether a value counts as others' where nothing is known of
    the file yet.
    """
    if record is None:
        return Record(look.after, _at_first(look) if first_looks else None)
    if not record.written:
        return Record(look.after, record.original)
    if same(look.file, look.have, record.written):
        theirs = look.writer in (KUBELET, SYSTEMD)  # what a runtime writes may be what NRI had us say
    else:
        theirs = _is_theirs(look, record.written)
    return Record(look.after, look.have if theirs else record.original)


def _is_theirs(look: Look, written: str) -> bool:
    """Whether plans shall be made from it. What a person writes is drift and no more.

    Of those that write and end at once runc writes containers' own cgroups, and the hook raises shared ones;
    kubelet and systemd, which write all above, do not end.
    """
    if look.writer in WRITERS:
        return look.writer not in (AGENT, OTHER)
    if look.writer == ENDED:
        return look.own
    raised = look.shared and higher(look.file, look.have, written)
    return not (look.writer == UNTOLD and raised)


def _at_first(look: Look) -> str:
    """The value that is there. But a value that is already as we want it may be ours: the hook's, NRI's, of a
    lost journal.

    Then a new cgroup's value is right in files that nobody else writes. In the others it cannot be known,
    and taking it for theirs is at worst as wrong as leaving it.
    """
    ours = same(look.file, look.have, look.want)
    return NEW.get(look.file, look.have) if ours else look.have
