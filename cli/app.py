"""The command `j10ce`, also kubectl's plugin `kubectl-j10ce`: each program's commands, imported on use.

Expected errors become one line on stderr and exit code 1; wrong usage ends with 2. J10CE_DEBUG=1 shows
tracebacks.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, where it is ("module:attribute", a typer app or a function), one line of help."""

    name: str
    target: str
    help: str


ENTRIES = (
    Entry(
        "preflight",
        "cli.preflight:preflight",
        "Say what installing would change on a cluster; change nothing.",
    ),
    Entry("install", "cli.install:install", "Install CRDs, rights, and a kube-scheduler with the extender."),
    Entry(
        "uninstall", "cli.uninstall:uninstall", "Remove from the cluster what install and the extender made."
    ),
    Entry(
        "budgets",
        "cli.budgets:budgets",
        "Show what ReservationBudgets give, what is used, and who asks for more.",
    ),
    Entry("quota", "cli.quota:app", "Show what each ElasticQuota may use, lends, borrows and is owed."),
    Entry("losses", "cli.losses:losses", "Say which loss of nodes each policy survives."),
    Entry("plan", "cli.plan:plan", "Show which kernel settings follow from a pod, its class and its floor."),
    Entry("hook", "hook.commands:app", "The OCI hook of this node: floors before a container's start."),
    Entry("node", "cli.node:app", "Say what works on this node, what does not, and why."),
    Entry("network", "cli.network:app", "Show how this node's network is shaped; take all of it away again."),
    Entry("lab", "lab.commands:app", "Throw-away control planes on this machine."),
    Entry(
        "scenario", "lab.scenario.commands:app", "Run declarative scenarios on a lab cluster, or on your own."
    ),
    Entry(
        "dev", "cli.dev:app", "For developers of j10ce-qos: generated files, and the hook's files by hand."
    ),
)

# Exceptions that explain themselves: object, value, what to do. Looked up only in modules that are loaded.
EXPECTED = (
    ("agent.config", "ConfigError"),
    ("adapters.api", "APIError"),
    ("adapters.api", "Unreachable"),
    ("adapters.documents", "DocumentsError"),
    ("adapters.kubernetes.credentials", "CredentialsError"),
    ("adapters.kubernetes.wire", "DecodeError"),
    ("cli.cache", "CacheFolderError"),
    ("cli.floors", "FloorError"),
    ("cli.host_files", "HostFilesError"),
    ("cli.kubectl", "KubectlError"),
    ("cli.bpf", "CompileError"),
    ("cli.protobuf", "ProtobufError"),
    ("hook.installation.errors", "InstallationError"),
    ("kernel.cache", "CacheBad"),
    ("kernel.refused", "Refused"),
    ("lab.binaries", "BinariesError"),
    ("lab.cluster", "LabError"),
    ("lab.components", "UnknownComponentError"),
    ("lab.node_programs", "NodeProgramsError"),
    ("lab.recorder", "RecordingLostError"),
    ("lab.runtimes.programs", "RuntimesError"),
    ("lab.scenario.actions", "StepError"),
    ("lab.scenario.source", "ScenarioError"),
    ("lab.scenario.targets", "TargetError"),
    ("lab.scheduler_config", "SchedulerConfigError"),
    ("lab.vm.recipe", "VmError"),
)


class LazyCommand(TyperCommand):
    """Stands for a command in lists and in completion; imports the real one when it is used."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.help, short_help=entry.help, rich_markup_mode="rich")
        self._target = entry.target

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The real command's context: from here on, that one answers."""
        return load(self._target).make_context(info_name, args, parent, **extra)


class Root(TyperGroup):
    """The root command: lists every entry without importing any."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for entry in ENTRIES:
            self.add_command(LazyCommand(entry))


app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def load(target: str) -> Any:
    """Import "module:attribute" and make it a command."""
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(rich_markup_mode="rich", context_settings=app.info.context_settings)
        single.command()(found)
        found = single
    found._add_completion = False  # noqa: SLF001 - only the root installs completion
    return typer.main.get_command(found)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # 40 ms that --help need not pay

        typer.echo(f"j10ce-qos {metadata.version('j10ce-qos')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Floors for Kubernetes workloads: capacity held for pods that do not exist yet."""


def program_name(argv0: str) -> str:
    """How the user called us: as kubectl's plugin, or by our own name."""
    return "kubectl j10ce" if Path(argv0).name == "kubectl-j10ce" else "j10ce"


def is_expected(error: BaseException) -> bool:
    """True for an exception that explains itself (EXPECTED)."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in EXPECTED)
    return isinstance(error, tuple(kind for kind in kinds if isinstance(kind, type)))


def main() -> None:
    """Run the command line; ends the process."""
    command = typer.main.get_command(app)
    try:
        command(prog_name=program_name(sys.argv[0]), complete_var="_J10CE_COMPLETE")
    except Exception as error:
        if os.environ.get("J10CE_DEBUG") or not is_expected(error):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)


def complete() -> None:
    """What kubectl runs to complete `kubectl j10ce ...` (kubectl_complete-j10ce): words, then a directive."""
    words = ["j10ce", *sys.argv[1:]]
    os.environ |= {
        "_J10CE_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    found = io.StringIO()
    with contextlib.redirect_stdout(found), contextlib.suppress(SystemExit):
        main()
    no_file_names = 4
    sys.stdout.write(f"{found.getvalue().strip()}\n:{no_file_names}\n")
