"""A client of Kubernetes that outlives the API server."""

from __future__ import annotations

import functools
import select
import time
from collections.abc import Callable
from typing import Any

from lightkube import Client

from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of

_SECONDS = 180
_NOT_FOUND, _CONFLICT, _BUSY = 404, 409, 429


class Steady:
    """Calls again what failed because the API server was away.

    It may have done it although it did not answer: what was made is there then, and what was to be
    deleted is gone.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, name)

    def _call(self, name: str, *words: Any, **more: Any) -> Any:
        deadline = time.monotonic() + _SECONDS
        failed = False
        while True:
            try:
                found = getattr(self._client, name)(*words, **more)
                return list(found) if name == "list" else found
            except CALL_ERRORS as error:
                code = code_of(error)
                if failed and name == "create" and code == _CONFLICT:
                    made = words[0].metadata
                    return self.get(type(words[0]), made.name, namespace=made.namespace)
                if failed and name == "delete" and code == _NOT_FOUND:
                    return None
                if 0 < code < 500 and code != _BUSY:
                    raise
                if time.monotonic() > deadline:
                    raise
                failed = True
            select.select([], [], [], 0.05)
