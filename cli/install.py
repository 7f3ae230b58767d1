"""`j10ce install`: CRDs, rights, kube-scheduler with extender, manager, agents, by server-side apply."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.syntax import Syntax

from adapters.output import Output, OutputOption
from cli import host_files, installation
from cli.keeping import Keeper, KeeperOption
from cli.kubectl import Kubectl, Object, as_list, find
from cli.preflight import (
    AgentOption,
    AutoscalingOption,
    Check,
    ContextOption,
    ImageOption,
    KubeconfigOption,
    ModeOption,
    NetworkFloorsOption,
    Outcome,
    Overlay,
    OverlayOption,
    Part,
    PercentageOption,
    QuotasOption,
    ReservationsOption,
    SchedulerImageOption,
    WithoutOption,
    assess,
    gather,
    keeper_after,
    percentage_after,
    refuse_what_verbs_do,
    show_changes,
    with_autoscaler,
    with_koordinator,
    with_placeholders,
)
from ledger.decisions import Mode

IMAGE_HINT: Final = """\
The image j10ce-qos:0.1.0 has to be where the nodes find it: docker build -t j10ce-qos:0.1.0 .
--image names another."""

LEAVING_HINT: Final = """\
Agents now take away what they made at their nodes' network interfaces, and keep the right to do so. Once they
are rolled out, install with --no-network-floors again: that takes the right from them."""


def install(
    overlay: OverlayOption = Overlay.SECOND,
    keeper: KeeperOption = None,
    image: ImageOption = "",
    scheduler_image: SchedulerImageOption = "",
    mode: ModeOption = None,
    agent: AgentOption = False,
    without: WithoutOption = None,
    network_floors: NetworkFloorsOption = None,
    reservations: ReservationsOption = None,
    percentage: PercentageOption = None,
    autoscaling: AutoscalingOption = None,
    quotas: QuotasOption = None,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files", help="Write the files for control-plane hosts to this folder (default-scheduler)."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files in --files that have other content.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Let the API server try it, show what would change, change nothing."),
    ] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that another field manager owns.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Install CRDs, rights, a kube-scheduler with the extender, and the manager; again to upgrade.

    An upgrade of the second scheduler keeps its mode unless --mode names one; the files of --files are in
    mode Guard unless it does. An agent that is there already is upgraded as well, with --agent or without;
    in mode Observe it writes nothing on the nodes, and reports what it would. Whether it shapes the nodes'
    networks stays as it is, too, and (not in the files of --files) whether Reservations are held,
    quotas kept and autoscalers asked for nodes, and --percentage-of-nodes-to-score.
    Exit code 1 when a check of `j10ce preflight` fails or a file would be lost: nothing has been changed.
    """
    if files is not None and (overlay is not Overlay.DEFAULT or keeper is Keeper.PLACEHOLDERS):
        raise typer.BadParameter("is for --overlay default-scheduler only", param_hint="--files")
    kubectl = find(os.environ, kubeconfig, context)
    facts = gather(kubectl)
    kept_by = keeper_after(facts, overlay, keeper)
    choices = installation.Choices(
        image,
        scheduler_image or installation.image_of(facts.schedulers),
        mode.value if mode else facts.mode if overlay is Overlay.SECOND else "",
        agent or facts.agent is not None,
        mode is Mode.OBSERVE if mode else installation.observes(facts.agent),
        installation.network_after(installation.network_of(facts.agent), network_floors),
        facts.raising,
        Part.MANAGER not in (without or ()),
        facts.reserves if reservations is None else reservations,
        percentage=percentage_after(facts, overlay, percentage),
        autoscaling=facts.autoscales if autoscaling is None else autoscaling,
        quotas=facts.quotas if quotas is None else quotas,
        placeholders=kept_by is Keeper.PLACEHOLDERS,
        both=kept_by is Keeper.BOTH,
    )
    refuse_what_verbs_do(choices)
    facts = with_autoscaler(kubectl, with_koordinator(kubectl, facts, choices), choices)
    facts = with_placeholders(kubectl, facts, choices)
    if network_floors and not choices.agent:
        raise typer.BadParameter("needs --agent: agents shape networks", param_hint="--network-floors")
    _refuse_unfit(assess(facts, overlay.value, choices, datetime.now(UTC)))
    texts = host_files.texts(choices) if files is not None else {}
    if files is not None and not force:
        host_files.refuse_edited(files, texts)
    wanted = installation.sparing(installation.objects(kubectl, overlay.value, choices), facts.namespace)
    changes = installation.changes(
        kubectl, [*installation.definitions(), *wanted], force_conflicts=force_conflicts
    )
    if not dry_run:
        if files is not None:
            host_files.write(files, texts)  # first: where it fails, the cluster is not changed either
        apply(kubectl, wanted, force_conflicts=force_conflicts)
    if output is Output.JSON:
        made = "placeholders" if choices.placeholders else overlay.value
        document = {"overlay": made, "dryRun": dry_run, "changes": [c.to_json() for c in changes]}
        typer.echo(json.dumps(document, indent=2))
        return
    _show(changes, None if choices.placeholders else overlay, files, dry_run=dry_run)
    if choices.agent and not dry_run:
        typer.echo(f"Agent: kubectl -n {installation.NAMESPACE} rollout status daemonset/j10ce-agent")
    if choices.network is installation.Network.LEAVING and not dry_run:
        typer.echo(LEAVING_HINT)
    if not image:
        typer.echo(IMAGE_HINT)


def apply(kubectl: Kubectl, wanted: list[Object], *, force_conflicts: bool) -> None:
    """Apply the CRDs and, once they are served, the rest."""
    definitions = installation.definitions()
    kubectl.apply(definitions, dry_run=False, force_conflicts=force_conflicts)
    kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", stdin=as_list(definitions))
    # The namespace first: what is in it cannot be applied before it is there.
    namespaces = [item for item in wanted if item["kind"] == "Namespace"]
    kubectl.apply(namespaces, dry_run=False, force_conflicts=force_conflicts)
    kubectl.apply(wanted, dry_run=False, force_conflicts=force_conflicts)


def _refuse_unfit(checks: list[Check]) -> None:
    failed = [check for check in checks if check.outcome is Outcome.FAILED]
    for check in failed:
        typer.echo(f"error: {check.name}: {check.message}", err=True)
    if failed:
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(1)


def _show(
    changes: list[installation.Change], overlay: Overlay | None, files: Path | None, *, dry_run: bool
) -> None:
    console = Console()
    show_changes(changes, console)
    for change in changes:
        if change.difference:
            console.print(f"\n{change.kind} {change.namespace or '-'}/{change.name}")
            console.print(Syntax(change.difference, "diff", background_color="default"))
    if dry_run:
        console.print("\nNothing was changed (--dry-run).")
    elif overlay is None:
        console.print(f"\nNext: kubectl -n {installation.NAMESPACE} rollout status deployment/j10ce-extender")
    elif overlay is Overlay.SECOND:
        console.print(
            f"\nNext: kubectl -n {installation.NAMESPACE} rollout status deployment/j10ce-scheduler"
        )
        console.print(
            f"Pods that shall be scheduled by it say spec.schedulerName: {installation.SCHEDULER}; what else "
            "brings them there, and which do not come: j10ce preflight"
        )
    else:
        where = (
            f"{files}/README.md" if files else "install again with --files FOLDER and read README.md there"
        )
        console.print(f"\nNext, on each control-plane host: {where}")
