"""Runs commands in the guest for the machine outside: `python3 -m lab.node.systemd.hand ADDRESS PORT`.

One connection a command: a line of JSON with argv, stdin and seconds; a line with code, stdout and stderr.
Whoever reaches the address is root there: it is that of a network which the machine and its guest have alone.
"""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys


class Hand(socketserver.StreamRequestHandler):
    """One command."""

    def handle(self) -> None:
        """Run it, and say how it ended."""
        asked = json.loads(self.rfile.readline())
        environ = os.environ | asked["environ"]
        try:
            done = subprocess.run(
                asked["argv"],
                input=asked["stdin"],
                env=environ,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=asked["seconds"],
                check=False,
            )
            answer = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        except (OSError, subprocess.TimeoutExpired) as error:
            answer = {"code": 127, "stdout": "", "stderr": str(error)}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    """Several at a time."""

    allow_reuse_address = True
    daemon_threads = True


def main() -> None:
    """Listen until killed."""
    with Server((sys.argv[1], int(sys.argv[2])), Hand) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
