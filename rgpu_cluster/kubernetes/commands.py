"""`rgpu units-webhook` and `rgpu legacy-controllers`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.command import OK, Command
from rgpu_common.endpoints import TcpEndpoint, parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.tasks import cancel_on_signals
from rgpu_common.variables import say_misspelt
from rgpu_server.cli import LEVELS

if TYPE_CHECKING:
    import argparse

PORT = 7443
_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20}


def _configure_webhook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default=f"0.0.0.0:{PORT}", metavar="HOST:PORT",
        help=f"Where it serves HTTPS (default: 0.0.0.0:{PORT}).",
    )  # fmt: skip
    for name, what in (("--certificate", "certificate"), ("--key", "certificate's key")):
        parser.add_argument(
            name, type=Path, required=True, metavar="FILE",
            help=f"The {what}, in PEM. The file is read again when it changes.",
        )  # fmt: skip
    parser.add_argument(
        "--client-ca", type=Path, metavar="FILE",
        help="Only callers with a certificate of this authority are answered.",
    )  # fmt: skip
    parser.add_argument(
        "--for", choices=("claims", "extender"), default="claims", dest="way",
        help="How pods get cards: by ResourceClaims (the default), or by the scheduler extender.",
    )  # fmt: skip
    parser.add_argument(
        "--gpu-mem-unit",
        choices=tuple(_UNITS),
        default="GiB",
        help="What 1 aliyun.com/gpu-mem is (default: GiB).",
    )
    parser.add_argument(
        "--qgpu-policy", choices=("burst", "fixed"), default="burst",
        help="Whether a qGPU container may use idle time beyond its cores (default: burst).",
    )  # fmt: skip
    parser.add_argument(
        "--elastic-gpu-claims", action="store_true",
        help="Pods may name ElasticGPUClaims, which `rgpu legacy-controllers` serves.",
    )  # fmt: skip
    _configure_all(parser)


def _configure_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE",
        help="How to reach the API server (default: KUBECONFIG, or the pod's ServiceAccount).",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="How much to log on stderr."
    )


def _begin(arguments: argparse.Namespace) -> None:
    say_misspelt(os.environ)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def _run_webhook(arguments: argparse.Namespace) -> int:
    from rgpu_server.daemon import run_loop

    _begin(arguments)
    endpoint = parse_endpoint(arguments.listen)
    if not isinstance(endpoint, TcpEndpoint):
        raise UsageError(f"--listen {arguments.listen} is no address; write 0.0.0.0:{PORT}")
    with contextlib.suppress(asyncio.CancelledError):
        run_loop(lambda: _serve(arguments, endpoint))
    return OK


async def _serve(arguments: argparse.Namespace, endpoint: TcpEndpoint) -> None:
    from rgpu_cluster.kubernetes.admission import Way
    from rgpu_cluster.kubernetes.api import open_client
    from rgpu_cluster.kubernetes.certificates import Certificates
    from rgpu_cluster.kubernetes.legacy.vendors import Options
    from rgpu_cluster.kubernetes.web import Server
    from rgpu_cluster.kubernetes.webhook import PATH, Webhook

    files = Certificates(arguments.certificate, arguments.key, arguments.client_ca)
    way = Way(arguments.way)
    options = Options(
        _UNITS[arguments.gpu_mem_unit],
        arguments.qgpu_policy == "burst",
        arguments.elastic_gpu_claims,
    )
    cancel_on_signals()
    async with contextlib.AsyncExitStack() as stack:
        client = None
        if way is Way.CLAIMS:
            client = await stack.enter_async_context(open_client(arguments.kubeconfig))
        server = Server({PATH: Webhook(client, way, options).answer})
        stack.push_async_callback(server.close)
        port = await server.start(endpoint.host, endpoint.port, files.context)
        print(f"rgpu: the units webhook serves https://{endpoint.host}:{port}{PATH}", flush=True)
        await files.watch()


units_webhook = Command(
    "units-webhook",
    "give claims to pods of Kubernetes that use the GPU units of other systems",
    _configure_webhook,
    _run_webhook,
)


def _configure_controllers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share-pods", action="store_true", help="Serve KubeShare's SharePods (kubeshare.nthu/v1)."
    )
    parser.add_argument(
        "--elastic-gpu", action="store_true",
        help="Serve ElasticGPUClass and ElasticGPUClaim (elasticgpu.io/v1alpha1).",
    )  # fmt: skip
    _configure_all(parser)


def _run_controllers(arguments: argparse.Namespace) -> int:
    from rgpu_server.daemon import run_loop

    if not arguments.share_pods and not arguments.elastic_gpu:
        raise UsageError("nothing is to be served; write --share-pods or --elastic-gpu or both")
    _begin(arguments)
    with contextlib.suppress(asyncio.CancelledError):
        run_loop(lambda: _control(arguments))
    return OK


async def _control(arguments: argparse.Namespace) -> None:
    from rgpu_cluster.kubernetes.api import open_client
    from rgpu_cluster.kubernetes.legacy import controllers as kinds

    cancel_on_signals()
    async with open_client(arguments.kubeconfig) as client:
        chosen: list[kinds.Controller] = []
        if arguments.share_pods:
            await kinds.check_definitions(client, kinds.SHAREPODS)
            chosen.append(kinds.SharePods(client))
        if arguments.elastic_gpu:
            await kinds.check_definitions(client, kinds.ELASTIC)
            chosen += [kinds.ElasticClasses(client), kinds.ElasticClaims(client)]
        print("rgpu: the legacy controllers work", flush=True)
        await kinds.run_all([one.run for one in chosen])


legacy_controllers = Command(
    "legacy-controllers",
    "keep pods and claims for the objects of KubeShare and Elastic GPU on Kubernetes",
    _configure_controllers,
    _run_controllers,
)
