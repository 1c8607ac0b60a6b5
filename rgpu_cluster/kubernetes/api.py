"""The connection to Kubernetes' API server."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import httpx2
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.core.exceptions import ConfigError as KubeConfigError
from msgspec import DecodeError

from rgpu_common.errors import ConfigError
from rgpu_common.texts import one_line

# A call that takes longer has failed. Watches have a deadline of their own (`informer`).
CALL_SECONDS = 15.0
# A tenant may nest the opaque parameters of a claim, of up to 10 KiB, some 5,000 deep. A list with
# such a claim could not be read otherwise, by any part.
_DEPTH = 12_000
_MOST_TEXT = 200


def open_client(kubeconfig: str = "") -> AsyncClient:
    """Returns a client. kubeconfig: a file; "" for KUBECONFIG, or the ServiceAccount of a pod.

    Raises:
        ConfigError: there is no such file, or it does not say how to reach a server.
    """
    allow_depth()
    # It logs a line for each call.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    file = kubeconfig or os.environ.get("KUBECONFIG", "")
    try:
        if file:
            config = KubeConfig.from_file(Path(file).expanduser())
        else:
            config = KubeConfig.from_service_account()
        return AsyncClient(config=config, timeout=httpx2.Timeout(CALL_SECONDS), trust_env=False)
    except (KubeConfigError, OSError, ValueError, KeyError) as error:
        where = f"{file} does not say" if file else "this is no pod, and KUBECONFIG does not say"
        raise ConfigError(
            f"{where} how to reach Kubernetes ({error}); name a kubeconfig file with --kubeconfig"
        ) from None


def allow_depth() -> None:
    """Lets this process read objects that are nested as deeply as Kubernetes allows."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEPTH))


def code_of(error: Exception) -> int:
    """Returns the HTTP status of a call that failed; 0: there was no answer."""
    if isinstance(error, ApiError):
        return int(error.status.code or 0)
    if isinstance(error, httpx2.HTTPStatusError):
        return int(error.response.status_code)
    return 0


def sentence_of(error: Exception) -> str:
    """Returns why a call failed."""
    if isinstance(error, ApiError):
        return str(error.status.message or error.status.reason or "the API server refused")
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return f"the API server did not answer within {CALL_SECONDS:g} s"
    if isinstance(error, httpx2.TransportError):
        return f"the API server cannot be reached ({str(error) or type(error).__name__})"
    if isinstance(error, DecodeError):
        return f"an object cannot be read ({one_line(str(error), _MOST_TEXT)})"
    return str(error) or type(error).__name__


# What a call raises when it fails.
CALL_ERRORS = (ApiError, httpx2.HTTPError, TimeoutError, OSError, DecodeError)
