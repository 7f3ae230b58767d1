"""The steps that no scenario of kwok-scenarios takes do what they say."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"
CONFIGS = Path(__file__).parents[2] / "scheduler-config"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STEPS = """\
name: steps
description: every other step
cluster: {schedulerConfig: CONFIGS/default-scheduler.yaml}
nodes:
  - {name: a, count: 2, allocatable: {cpu: "4", memory: 16Gi, example.com/gpu: "2"}}
  - {name: b, count: 1, allocatable: {cpu: "4", memory: 16Gi}, taints: [{key: dedicated, value: b}]}
profiles:
  - {name: critical, spec: {class: LSR}}
policies:
  - name: checkout
    spec:
      selector: {matchLabels: {app: checkout}}
      profileName: critical
      floor: {resources: {cpu: "1"}}
      slots: {count: 2}
  - name: later
    spec:
      selector: {matchLabels: {app: later}}
      floor: {resources: {cpu: "1"}}
      slots: {count: 1}
steps:
  - wait: {until: [{policy: {name: checkout, held: 2}}], within: 60s}
  - applyPolicies: [later]
  - wait: {until: [{policy: {name: later, held: 1}}], within: 60s}
  - create:
      name: tolerant
      requests: {cpu: 500m}
      tolerations: [{key: dedicated, operator: Exists}]
      nodeSelector: {kubernetes.io/hostname: b-0}
  - wait: {until: [{pods: {workload: tolerant, bound: 1, onNodes: b-}}], within: 60s}
  - create: {name: gpu, requests: {example.com/gpu: "1"}}
  - create: {name: job, kind: Job, count: 2, requests: {cpu: 100m}}
  - create: {name: set, kind: StatefulSet, count: 2, requests: {cpu: 100m}}
  - wait:
      until:
        - pods: {workload: gpu, bound: 1, onNodes: a-}
        - pods: {workload: job, everBound: 2}
        - pods: {workload: set, bound: 2}
      within: 60s
  - scale: {workload: set, count: 3}
  - wait: {until: [{pods: {workload: set, bound: 3}}], within: 60s}
  - create: {name: batch, count: 2, requests: {cpu: 500m}}
  - wait: {until: [{pods: {workload: batch, bound: 2}}], within: 60s}
  - churn: {workload: batch, rate: 5, seconds: 2s, background: true}
  - wait: {until: [{pods: {workload: batch, created: 12, bound: 2, pending: 0}}], within: 60s}
  - scale: {workload: batch, count: 4}
  - wait: {until: [{pods: {workload: batch, created: 14, bound: 4}}], within: 60s}
  - scale: {workload: batch, count: 1}
  - wait: {until: [{pods: {workload: batch, bound: 1, pending: 0}}], within: 60s}
  - cordon: {group: a}
  - wait: {until: [{policy: {name: checkout, held: 0, unplaced: 2}}], within: 60s}
  - create: {name: late, requests: {cpu: 100m}}
  - wait: {until: [{pods: {workload: late, pending: 1}}], within: 60s}
  - uncordon: {group: a}
  - wait: {until: [{policy: {name: checkout, held: 2}}, {pods: {workload: late, bound: 1}}], within: 60s}
  - taint: {group: a, count: 2, taint: {key: gone}}
  - wait: {until: [{policy: {name: checkout, held: 0}}], within: 60s}
  - delete: {workload: set}
  - wait: {until: [{pods: {workload: set, bound: 0}}], within: 60s}
  - expect: [{policy: {name: checkout, desired: 2}}]
expectations:
  - evictions: 0
"""


@pytest.mark.usefixtures("binaries")
def test_every_other_step(tmp_path: Path) -> None:
    file = tmp_path / "steps.yaml"
    file.write_text(STEPS.replace("CONFIGS", str(CONFIGS)))
    done = subprocess.run(
        [J10CE, "scenario", "run", file], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-2000:]}"


@pytest.mark.usefixtures("binaries")
def test_a_step_that_cannot_be_taken_fails_the_run_and_says_why(tmp_path: Path) -> None:
    text = STEPS[: STEPS.index("steps:")].replace("CONFIGS", str(CONFIGS))
    file = tmp_path / "steps.yaml"
    file.write_text(text + "steps:\n  - removeNodes: {group: a, count: 9}\n")
    done = subprocess.run(
        [J10CE, "scenario", "run", file], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 1
    assert "there are 2 such nodes in group a, not 9" in done.stdout
