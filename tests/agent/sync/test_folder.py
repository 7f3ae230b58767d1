"""A folder of YAML as the source: what is taken over, and that a bad file undoes nothing."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.state import Known, KnownPod
from agent.sync.folder import FolderSource
from agent.sync.folder_files import read_folder
from qos import keys
from qos.pods.containers import NodePod
from tests import waiting

EXAMPLES = Path(__file__).parents[3] / "examples" / "standalone"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop, labels: {app: web}}
spec:
  priorityClassName: high
  containers: [{name: web, resources: {requests: {cpu: 500m}}}]
"""
POLICY = """\
apiVersion: j10ce.io/v1alpha1
kind: MinimalReservationPolicy
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  floor: {resources: {cpu: "1"}}
  slots: {count: 1}
"""
PROFILE = """\
apiVersion: j10ce.io/v1alpha1
kind: QoSProfile
metadata: {name: fast}
spec: {class: LS}
"""
PRIORITY = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
"""


class Rig:
    def __init__(self, folder: Path, eventually: Callable[..., Any]) -> None:
        self.folder, self.eventually = folder, eventually
        self.known = Known()
        self.changes: list[tuple[str, str]] = []
        self.source = self.another()

    def another(self, seconds: float = 600.0) -> FolderSource:
        return FolderSource(
            self.folder, self.known, lambda kind, key: self.changes.append((kind, key)), seconds=seconds
        )

    def write(self, name: str, *documents: str) -> None:
        (self.folder / name).write_text("---\n".join(documents))

    @asynccontextmanager
    async def running(self, *, spoken: bool = True) -> AsyncIterator[None]:
        async with waiting.running(self.source.run()):
            if spoken:
                await self.eventually(self.source.spoken.is_set)
            yield

    @property
    def pods(self) -> list[str]:
        return sorted(self.known.pods)


@pytest.fixture
def rig(tmp_path: Path, eventually: Callable[..., Any]) -> Rig:
    folder = tmp_path / "objects"
    folder.mkdir()
    return Rig(folder, eventually)


def pod(name: str, **replaced: str) -> str:
    text = POD.replace("NAME", name)
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


async def test_all_kinds_from_files_of_many_documents(rig: Rig) -> None:
    rig.write("a.yaml", pod("web-0"), pod("web-1"), POLICY)
    rig.write("b.yml", PROFILE, PRIORITY)
    rig.write("notes.txt", "no: object")
    rig.write(".hidden.yaml", pod("hidden"))
    (rig.folder / "deeper").mkdir()
    (rig.folder / "deeper" / "c.yaml").write_text(pod("deeper"))
    async with rig.running():
        assert rig.pods == ["shop/web-0", "shop/web-1"]
        web = rig.known.pods["shop/web-0"].pod
        assert (web.uid, web.priority, web.containers[0].cpu_request) == ("shop/web-0", 1000, 500)
        assert rig.known.policies["default/web"].floor == {"cpu": 1000}
        assert rig.known.policies["default/web"].namespace == "default"
        assert list(rig.known.profiles) == ["fast"]
        assert rig.known.priority_classes["high"].value == 1000
        assert rig.known.priority_classes["system-node-critical"].value > 2_000_000_000
        assert rig.source.problem() == ""


async def test_what_is_written_while_it_runs(rig: Rig) -> None:
    rig.write("a.yaml", pod("web-0"))
    async with rig.running():
        rig.changes.clear()
        rig.write("b.yaml", pod("web-1"))
        await rig.eventually(lambda: rig.pods == ["shop/web-0", "shop/web-1"])
        rig.write("a.yaml", pod("web-0", **{"500m": "700m"}))
        await rig.eventually(lambda: rig.known.pods["shop/web-0"].pod.containers[0].cpu_request == 700)
        (rig.folder / "b.yaml").rename(rig.folder / "c.yaml")
        rig.write("d.yaml", PRIORITY)
        await rig.eventually(lambda: rig.known.pods["shop/web-1"].pod.priority == 1000)
        (rig.folder / "c.yaml").unlink()
        await rig.eventually(lambda: rig.pods == ["shop/web-0"])
        assert set(rig.changes) >= {("pods", "shop/web-1"), ("pods", "shop/web-0"), ("rules", "high")}


async def test_a_file_that_did_not_change_is_not_read_again(rig: Rig) -> None:
    rig.write("a.yaml", pod("web-0"))
    rig.write("b.yaml", pod("web-1"))
    first = read_folder(rig.folder, {})
    rig.write("b.yaml", pod("web-22"))  # longer: the clock of a file system is too coarse to tell
    second = read_folder(rig.folder, first)
    a, b = rig.folder / "a.yaml", rig.folder / "b.yaml"
    assert second[a] is first[a]
    assert second[b] is not first[b]


@pytest.mark.parametrize(
    ("bad", "line", "words"),
    [
        (pod("web-0", **{"500m": "half"}), 6, "spec.containers[0].resources.requests: cpu: 'half'"),
        ("a: [", 1, "is not YAML"),
        (POLICY + "  slot: {count: 1}\n", 8, "spec.slot: {'count': 1}"),
        (POLICY + "---\n- 1\n", 9, "expected Kubernetes objects"),
    ],
)
async def test_a_bad_file_is_named_and_its_last_good_state_stays(
    rig: Rig, bad: str, line: int, words: str, caplog: Any
) -> None:
    rig.write("a.yaml", pod("web-0"))
    async with rig.running():
        rig.changes.clear()
        rig.write("a.yaml", bad)
        await rig.eventually(rig.source.problem)
        assert rig.source.problem().startswith(f"{rig.folder / 'a.yaml'}:{line}: ")
        assert words in rig.source.problem()
        assert rig.source.problem() in caplog.text
        assert rig.pods == ["shop/web-0"]
        assert rig.changes == []
        rig.write("b.yaml", pod("web-1"))
        await rig.eventually(lambda: rig.pods == ["shop/web-0", "shop/web-1"])
        rig.write("a.yaml", pod("web-2"))
        await rig.eventually(lambda: rig.pods == ["shop/web-1", "shop/web-2"])
        assert rig.source.problem() == ""


async def test_a_file_that_was_never_good_keeps_what_was_known_before(rig: Rig) -> None:
    cached = KnownPod(NodePod("shop/old", "shop", "old", ()))
    other = KnownPod(NodePod("u1", "shop", "other", ()), provisional=True)
    rig.known.pods |= {"shop/old": cached, "u1": other}
    rig.source = rig.another()
    rig.write("a.yaml", "a: [")
    rig.write("b.yaml", pod("web-0"))
    async with rig.running(spoken=False):
        await rig.eventually(lambda: "shop/web-0" in rig.pods)
        assert rig.pods == ["shop/old", "shop/web-0", "u1"]
        assert not rig.source.spoken.is_set()
        rig.write("a.yaml", pod("web-1"))
        await rig.eventually(rig.source.spoken.is_set)
        assert rig.pods == ["shop/web-0", "shop/web-1", "u1"]


async def test_a_folder_that_goes_away_says_nothing(rig: Rig) -> None:
    rig.write("a.yaml", pod("web-0"))
    rig.source = rig.another(seconds=0.01)
    async with rig.running():
        rig.folder.rename(rig.folder.with_name("elsewhere"))
        await rig.eventually(lambda: "cannot be read" in rig.source.problem())
        assert rig.pods == ["shop/web-0"]
        rig.folder.mkdir()
        await rig.eventually(lambda: rig.pods == [])


async def test_what_everybody_may_write_is_not_believed(rig: Rig) -> None:
    rig.write("a.yaml", pod("web-0"))
    rig.write("b.yaml", pod("web-1"))
    (rig.folder / "b.yaml").chmod(0o646)
    async with rig.running(spoken=False):
        await rig.eventually(lambda: rig.pods == ["shop/web-0"])
        assert rig.source.problem() == f"{rig.folder / 'b.yaml'}: everybody may write it: chmod o-w"
        (rig.folder / "b.yaml").chmod(0o644)
        await rig.eventually(lambda: rig.pods == ["shop/web-0", "shop/web-1"])
        rig.folder.chmod(0o777)
        await rig.eventually(lambda: "chmod o-w" in rig.source.problem())
        assert rig.pods == ["shop/web-0", "shop/web-1"]


async def test_what_others_put_into_known_is_theirs(rig: Rig) -> None:
    """The agent moves a pod to its uid when the runtime tells it."""
    rig.write("a.yaml", pod("web-0"))
    async with rig.running():
        rig.known.pods["u1"] = rig.known.pods.pop("shop/web-0")
        rig.write("b.yaml", pod("web-1"))
        await rig.eventually(lambda: "shop/web-1" in rig.pods)
        assert rig.pods == ["shop/web-1", "u1"]


async def test_of_two_objects_of_one_name_the_first_counts(rig: Rig) -> None:
    rig.write("a.yaml", pod("web-0"))
    rig.write("b.yaml", "# a comment\n" + pod("web-0", **{"500m": "700m"}))
    async with rig.running():
        assert rig.known.pods["shop/web-0"].pod.containers[0].cpu_request == 500
        assert rig.source.problem().startswith(f"{rig.folder / 'b.yaml'}:2: Pod shop/web-0 is in ")


async def test_uids_and_policies_that_pods_state(rig: Rig) -> None:
    static = "0123456789abcdef0123456789abcdef"
    notes = f"{{{keys.MIRROR_ANNOTATION}: x, {keys.STATIC_UID_ANNOTATION}: {static}, j10ce.io/policy: a/b}}"
    rig.write("a.yaml", pod("web-0").replace("name: web-0,", "name: web-0, uid: u1,"))
    rig.write("b.yaml", pod("web-1").replace("name: web-1,", f"name: web-1, uid: u2, annotations: {notes},"))
    async with rig.running():
        assert rig.pods == [static, "u1"]
        assert rig.known.pods[static].policy == "a/b"


async def test_workloads_are_no_pods_of_this_node(rig: Rig) -> None:
    template = "spec: {template: {spec: {containers: [{name: a}]}}}"
    rig.write("a.yaml", f"kind: Deployment\napiVersion: apps/v1\nmetadata: {{name: web}}\n{template}\n")
    async with rig.running():
        assert rig.pods == []


async def test_the_example(rig: Rig) -> None:
    shutil.copytree(EXAMPLES, rig.folder, dirs_exist_ok=True)
    async with rig.running():
        assert rig.pods == ["shop/batch", "shop/checkout"]
        assert rig.source.problem() == ""
        policy = rig.known.policies["shop/checkout"]
        assert policy.profile_name in rig.known.profiles
