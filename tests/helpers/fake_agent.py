"""An agent of a GPU node that gives credentials, for tests without one."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from typing_extensions import Self

from rgpu_common.v1 import credentials_pb2, credentials_pb2_grpc


class FakeAgent(credentials_pb2_grpc.CredentialServiceServicer):
    """`with FakeAgent(server) as agent:`; `agent.address` is what a ResourceSlice has.

    server: RGPU_SERVER of its credentials. seconds: how long a credential is valid. refuses: the
    code and sentence of its answer, to the first `refuses_first` calls or to all. make: what makes a token of a claim's UID and its end.
    """

    def __init__(
        self, server: str = "gpu7:7700", seconds: float = 3600, make: object = None
    ) -> None:
        self.make = make
        self._first = server, seconds
        self.begin()
        self._server = grpc.server(ThreadPoolExecutor(4))
        credentials_pb2_grpc.add_CredentialServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"

    def begin(self) -> None:
        """Answers as it was made to, and has not been asked."""
        self.server, self.seconds = self._first
        self.device, self.lease = "0", ""
        self.refuses: tuple[grpc.StatusCode, str] | None = None
        self.refuses_first = 0
        self.asked: list[tuple[str, str, str]] = []
        self.callers: list[str] = []
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    def GetCredential(
        self, request: credentials_pb2.GetCredentialRequest, context: grpc.ServicerContext
    ) -> credentials_pb2.GetCredentialResponse:
        metadata = dict(context.invocation_metadata())
        self.callers.append(str(metadata.get("authorization", "")))
        self.asked.append((request.namespace, request.name, request.uid))
        if self.refuses is not None and (
            not self.refuses_first or len(self.asked) <= self.refuses_first
        ):
            context.abort(*self.refuses)
        expires = time.time() + self.seconds
        token = f"token-{next(self._numbers)}-of-{request.uid}"
        if callable(self.make):
            token = self.make(request, expires)
        return credentials_pb2.GetCredentialResponse(
            token=token, expires=round(expires), server=self.server,
            lease=self.lease or request.uid, device=self.device,
        )  # fmt: skip
