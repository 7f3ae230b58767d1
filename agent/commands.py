"""The command line: j10ce-agent."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from adapters import logs
from adapters.atomic_file import Untrusted
from adapters.kubernetes import credentials, kubeconfig
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.credentials import CredentialsError
from adapters.serving.process import until_signalled
from agent import host_cgroups, rights
from agent.config import NRI_SOCKET, RUN, STATE, AgentConfig, ConfigError, address, checked
from agent.network import koordinator
from agent.network.told import EGRESS_SHARE, INGRESS_SHARE, told
from agent.process import keep, restore_and_stay
from agent.reporting import Identity
from kernel.refused import Refused
from qos.network.bands import HOST_PERCENT
from qos.plan.node_share import NodeShares
from qos.pods.decision import Choices

log = logging.getLogger(__name__)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def serve(
    node: Annotated[
        str, typer.Option(help="This node's name in the API server.", envvar="NODE_NAME", metavar="NAME")
    ] = "",
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig", help="How to reach the API server. Default: as the pod's service account."
        ),
    ] = None,
    standalone: Annotated[
        Path | None,
        typer.Option(help="No API server: pods, policies and profiles are YAML files in this folder."),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(
            "--address",
            help="HOST:PORT of /healthz, /readyz, and /metrics for the loopback.",
            envvar="J10CE_AGENT_ADDRESS",
        ),
    ] = "127.0.0.1:10262",
    metrics_address: Annotated[
        str,
        typer.Option(
            help="HOST:PORT of /metrics by HTTPS, for those whose token may read it; '' serves none.",
            envvar="J10CE_AGENT_METRICS_ADDRESS",
        ),
    ] = "",
    node_cgroups: Annotated[
        bool,
        typer.Option(
            "--node-cgroups",
            help="In a container: see all cgroups of the node, by the namespace of process 1 (hostPID).",
            envvar="J10CE_NODE_CGROUPS",
        ),
    ] = False,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe",
            help="Plan, measure and report what would be written; write nothing that a pod could feel.",
            envvar="J10CE_AGENT_OBSERVE",
        ),
    ] = False,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore", help="Put back what others want in all kernel files, remove our files, and wait."
        ),
    ] = False,
    class_defaults: Annotated[
        bool,
        typer.Option(
            "--class-defaults",
            help="Pods without a policy and without a class get the class of their QoS class, too.",
            envvar="J10CE_CLASS_DEFAULTS",
        ),
    ] = False,
    author_oom_scores: Annotated[
        bool,
        typer.Option(
            "--author-oom-scores",
            help="Annotations of pods may lower oom_score_adj below what kubelet computed.",
            envvar="J10CE_AUTHOR_OOM_SCORES",
        ),
    ] = False,
    node_shares: Annotated[
        NodeShares,
        typer.Option(
            help="What all pods weigh together: as kubelet wrote, or so that allocatable CPU is true.",
            envvar="J10CE_NODE_SHARES",
        ),
    ] = NodeShares.KUBELET,
    network_floors: Annotated[
        bool,
        typer.Option(
            "--network-floors",
            help="Shape what the node sends, and offer what its link can promise to floors.",
            envvar="J10CE_NETWORK_FLOORS",
        ),
    ] = False,
    shape_ingress: Annotated[
        bool,
        typer.Option(
            "--shape-ingress",
            help="Shape what the node receives, too, through an IFB, and offer it to floors.",
            envvar="J10CE_SHAPE_INGRESS",
        ),
    ] = False,
    link_interface: Annotated[
        str,
        typer.Option(
            help="The interface through which pods leave the node. Default: that of the default route.",
            envvar="J10CE_LINK_INTERFACE",
        ),
    ] = "",
    link_egress: Annotated[
        str,
        typer.Option(
            help="Bits a second that it can send, such as 10G. Default: as it says itself.",
            envvar="J10CE_LINK_EGRESS",
        ),
    ] = "",
    link_ingress: Annotated[
        str, typer.Option(help="Bits a second that it can receive.", envvar="J10CE_LINK_INGRESS")
    ] = "",
    link_egress_share: Annotated[
        str,
        typer.Option(help="Of what it can send, what pods may have.", envvar="J10CE_LINK_EGRESS_SHARE"),
    ] = str(float(EGRESS_SHARE)),
    link_ingress_share: Annotated[
        str,
        typer.Option(help="Of what it can receive, what pods may have.", envvar="J10CE_LINK_INGRESS_SHARE"),
    ] = str(float(INGRESS_SHARE)),
    link_host_percent: Annotated[
        int,
        typer.Option(
            help="Of that, in percent, what the host itself keeps: kubelet, ssh, NFS and iSCSI.",
            min=0,
            max=90,
            envvar="J10CE_LINK_HOST_PERCENT",
        ),
    ] = HOST_PERCENT,
    network_files: Annotated[
        Path | None,
        typer.Option(
            help="A folder of terway-qos' files, or of the keys of Koordinator's slo-controller-config.",
            envvar="J10CE_NETWORK_FILES",
        ),
    ] = None,
    koordinator_config: Annotated[
        str,
        typer.Option(
            help="NAMESPACE/NAME of Koordinator's ConfigMap, of which networkQOS and totalNetworkBandwidth "
            "are heeded with --network-floors; '' follows none.",
            envvar="J10CE_KOORDINATOR_CONFIG",
        ),
    ] = koordinator.DEFAULT,
    nri_socket: Annotated[
        str, typer.Option(help="The container runtime's NRI socket; '' does without.")
    ] = str(NRI_SOCKET),
    run: Annotated[Path, typer.Option(help="The hook's files, locks: gone after a boot.")] = RUN,
    state: Annotated[Path, typer.Option(help="What outlives a boot.")] = STATE,
    check_seconds: Annotated[float, typer.Option(help="Between two full checks of all kernel files.")] = 60.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Keep the floors of this node's pods: from birth, against drift, measured."""
    try:
        logs.set_up(log_level)
        config = checked(
            AgentConfig(
                node=node,
                standalone=standalone,
                kubeconfig=config_file,
                run=run,
                state=state,
                nri_socket=Path(nri_socket) if nri_socket else None,
                address=address(listen),
                metrics_address=address(metrics_address, "--metrics-address") if metrics_address else None,
                check_seconds=check_seconds,
                observe=observe,
                choices=Choices(class_defaults, author_oom_scores),
                node_shares=node_shares,
                network_floors=network_floors,
                shape_ingress=shape_ingress,
                link_host_percent=link_host_percent,
                network_files=network_files,
                koordinator_config=koordinator_config,
                link=told(link_interface, link_egress, link_ingress, link_egress_share, link_ingress_share),
            )
        )
        raise_open_files()
        if node_cgroups and host_cgroups.enter():
            log.info("entered the node's cgroup namespace")
        rights.give_up(rights.SYS_PTRACE)  # nothing else needs it
        uvloop.run(restoring(config) if restore else work(config))
    except (ConfigError, CredentialsError, Refused, Untrusted, OSError, ValueError) as error:
        typer.echo(f"j10ce-agent: {error}", err=True)
        raise typer.Exit(1) from error


async def work(config: AgentConfig) -> None:
    """Keep floors until SIGTERM or SIGINT."""
    stop = until_signalled()
    identity = Identity(metadata.version("j10ce-qos"), os.uname().release)
    async with _api(config) as api:
        await keep(config, api, identity, stop)
    log.info("ended: what is in the kernel stays")


async def restoring(config: AgentConfig) -> None:
    """Leave the node as it was found; end at SIGTERM or SIGINT."""
    stop = until_signalled()
    async with AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(_api(config))
        except CredentialsError as error:
            log.warning("the Node stays as it is, kernel files do not: %s", error)
            api = None
        await restore_and_stay(config, api, stop)


@asynccontextmanager
async def _api(config: AgentConfig) -> AsyncIterator[KubernetesAPI | None]:
    """The API server, None for a folder: by kubeconfig where one is named, else by the service account."""
    if config.standalone is not None:
        yield None
        return
    if config.kubeconfig is None:
        endpoint = credentials.in_cluster()
    else:
        endpoint = kubeconfig.from_file(config.kubeconfig)
    async with KubernetesAPI(endpoint) as api:
        yield api


def raise_open_files() -> None:
    """Raise the limit of open files as far as we may: the monitor keeps some of each pod open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Run the command line; ends the process."""
    app()
