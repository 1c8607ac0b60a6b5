"""Channels to gRPC servers for asyncio. Apart from `channels`, because clients do not need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.channels import CHANNEL_OPTIONS, name_options, tls_credentials
from rgpu_common.endpoints import speaks_tls

# Only after `channels`, which keeps gRPC from printing.
import grpc.aio  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rgpu_common.endpoints import Endpoint


def open_aio_channel(
    server: Endpoint, environment: Mapping[str, str], options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Channel:
    """As `channels.open_channel`, for asyncio and with more options."""
    every = (*CHANNEL_OPTIONS, *options)
    if not speaks_tls(server):
        return grpc.aio.insecure_channel(server.grpc_target, options=every)
    named = (*every, *name_options(server, environment))
    return grpc.aio.secure_channel(server.grpc_target, tls_credentials(environment), options=named)
