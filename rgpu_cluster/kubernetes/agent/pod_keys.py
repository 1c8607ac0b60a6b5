"""Keeps the file with the API server's keys, by which the server checks the tokens of pods."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.api import CALL_ERRORS, sentence_of
from rgpu_server.identity.access_tokens import replace_file

if TYPE_CHECKING:
    from lightkube import AsyncClient

log = logging.getLogger("rgpu.kubernetes")

_PATH = "/openid/v1/jwks"
_MOST_BYTES = 1 << 20
# Keys are changed by hand, and both old and new ones are listed for a while.
_AGAIN_SECONDS, _RETRY_SECONDS = 300.0, 5.0


class PodKeys:
    """file: what `identity.pod_keys` of the server names; "": none is kept."""

    def __init__(self, client: AsyncClient, file: str) -> None:
        # lightkube has no call for paths that are no objects.
        self._http: Any = client._client._client
        self._file = file
        self._written = b""
        self._said = ""

    async def run(self) -> None:
        """Fetches the keys again and again, until it is cancelled."""
        while True:
            why = await self._fetch() if self._file else ""
            if why != self._said and why:
                log.warning("the keys for pods' tokens stay as they are: %s", why)
            self._said = why
            await asyncio.sleep(_RETRY_SECONDS if why else _AGAIN_SECONDS)

    async def _fetch(self) -> str:
        """Writes the file if the keys are new; returns why that failed, else ""."""
        try:
            answer = await self._http.get(_PATH)
            answer.raise_for_status()
            keys = json.loads(answer.content[:_MOST_BYTES])["keys"]
        except CALL_ERRORS as error:
            return sentence_of(error)
        except (ValueError, KeyError, TypeError):
            return f"{_PATH} of the API server holds no keys"
        text = json.dumps({"keys": keys}).encode()
        if text == self._written:
            return ""
        try:
            replace_file(Path(self._file), text, 0o644)
        except OSError as error:
            return f"{self._file} cannot be written: {error.strerror}"
        self._written = text
        return ""
