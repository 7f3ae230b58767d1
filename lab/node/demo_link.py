"""The link of a real node, as iproute2 shows it there, and how soon what somebody deletes there is back.

A program that runs in the node: `python3 -m lab.node.demo_link METHOD ARGUMENTS...` prints what the method
answers, as JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

DEVICE: Final = "eth0"
CLASS: Final = "class"
QDISC: Final = "qdisc"
_SECONDS = 60.0
_CLASS = re.compile(r"class htb (\S+) (?:parent (\S+)|root).*? rate (\S+)bit ceil (\S+)bit")
_STARTS = re.compile(r'^j10ce_agent_network_starts_total\{outcome="(\w+)"\} (\S+)', re.MULTILINE)
_WAITED = re.compile(r"^j10ce_agent_network_start_seconds_sum (\S+)", re.MULTILINE)
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


def floors(bits: dict[str, int]) -> dict[str, str]:
    """Of each way: the class whose rate is so many bits a second; "": none is."""
    return {
        way: next((one[0] for one in _classes(_device(way)) if _bits(one[2]) == wanted), "")
        for way, wanted in bits.items()
    }


def repaired_after(what: str, class_id: str) -> float:
    """Delete a class, or the qdisc above all of them; milliseconds until all classes are as they were."""
    before = _classes(DEVICE)
    which = ["classid", class_id] if what == CLASS else ["root"]
    begun = time.monotonic()
    _tc(what, "del", "dev", DEVICE, *which)
    while _classes(DEVICE) != before:
        if time.monotonic() > begun + _SECONDS:
            raise TimeoutError(f"nobody makes the {what} again within {_SECONDS:g} s: {_classes(DEVICE)}")
    return (time.monotonic() - begun) * 1000


def starts(port: int) -> tuple[dict[str, float], float]:
    """What came of pods' starts that waited for their network, and the seconds that all of them waited."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        said = answer.read().decode()
    outcomes = {outcome: float(count) for outcome, count in _STARTS.findall(said)}
    waited = _WAITED.search(said)
    return outcomes, float(waited[1]) if waited else 0.0


def shown() -> str:
    """Qdiscs and filters of the link, and interfaces of ours."""
    looks = [_tc("qdisc", "show", "dev", DEVICE)]
    looks += [_tc("filter", "show", "dev", DEVICE, where) for where in ("egress", "ingress")]
    return "".join([*looks, *(path.name for path in Path("/sys/class/net").glob("j10ce-*"))])


def _device(way: str) -> str:
    """Where its tree is: the link, or the IFB that it receives through."""
    index = Path(f"/sys/class/net/{DEVICE}/ifindex").read_text().strip()
    return DEVICE if way == "egress" else f"j10ce-ifb{index}"


def _classes(device: str) -> list[tuple[str, ...]]:
    """Id, parent, rate, ceiling."""
    if not Path(f"/sys/class/net/{device}").exists():
        return []
    return sorted(_CLASS.findall(_tc("class", "show", "dev", device)))


def _bits(rate: str) -> int:
    unit = _UNITS.get(rate[-1])
    return round(float(rate[:-1]) * unit) if unit else round(float(rate))


def _tc(*words: str) -> str:
    return subprocess.run(["tc", *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Call one of these functions."""
    method, *arguments = sys.argv[1:]
    functions: dict[str, Any] = {one.__name__: one for one in (floors, repaired_after, starts, shown)}
    sys.stdout.write(json.dumps(functions[method](*map(json.loads, arguments))))


if __name__ == "__main__":
    main()
