"""GPU nodes without GPUs: each speaks to a manager as a daemon does, and grants what fits.

`python -m benchmarks.cluster.fake_nodes MANAGER NODES CARDS` says "ready" when the manager has
admitted all nodes, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from typing import Any

import grpc.aio

from rgpu_common.clusters import ADMITTED
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, agent_pb2_grpc

MEMORY_BYTES = 80 << 30
_HEARTBEAT_SECONDS = 3.0


class FakeNode:
    """One node. Its cards never have more than they are."""

    def __init__(self, name: str, rack: str, cards: int) -> None:
        self._name = name
        self._rack = rack
        self._cards = cards
        self._leases: dict[str, agent_pb2.GrantOrder] = {}
        self._free = [PPM] * cards
        self._generation = 0

    async def run(self, stub: Any, admitted: asyncio.Semaphore) -> None:
        """Joins, and answers until the stream ends."""
        call = stub.Join()
        metadata = await call.initial_metadata()
        assert ADMITTED in [key for key, _ in metadata]
        await call.write(agent_pb2.AgentMessage(report=self._report()))
        admitted.release()
        beats = asyncio.ensure_future(self._beat(call))
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                answer = self._answer(message)
                if answer is not None:
                    await call.write(answer)
        finally:
            beats.cancel()

    async def _beat(self, call: Any) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            beat = agent_pb2.Heartbeat(generation=self._generation)
            await call.write(agent_pb2.AgentMessage(heartbeat=beat))

    def _report(self) -> agent_pb2.NodeReport:
        self._generation += 1
        return agent_pb2.NodeReport(
            name=self._name,
            server=hashlib.sha256(self._name.encode()).digest()[:16],
            generation=self._generation,
            address="127.0.0.1:9",
            rack=self._rack,
            cards=[
                agent_pb2.CardReport(ordinal=n, model="H100", memory_bytes=MEMORY_BYTES)
                for n in range(self._cards)
            ],
            leases=[
                agent_pb2.HeldLease(
                    ordinal=ordinal, tenant=order.tenant, request_id=request, kept=True,
                    attempt=order.attempt, share_ppm=order.quota.share_request_ppm,
                    memory_bytes=order.quota.memory_bytes, lease_id=f"{request}-{ordinal}",
                )
                for request, order in self._leases.items()
                for ordinal in order.ordinals
            ],
        )  # fmt: skip

    def _answer(self, message: agent_pb2.ManagerMessage) -> agent_pb2.AgentMessage | None:
        kind = message.WhichOneof("said")
        if kind == "grant":
            return agent_pb2.AgentMessage(granted=self._grant(message.grant))
        if kind == "revoke":
            order = message.revoke
            self._revoke(order.request_id)
            revoked = agent_pb2.RevokeAnswer(request_id=order.request_id, attempt=order.attempt)
            return agent_pb2.AgentMessage(revoked=revoked)
        if kind == "report":
            return agent_pb2.AgentMessage(report=self._report())
        return None

    def _grant(self, order: agent_pb2.GrantOrder) -> agent_pb2.GrantAnswer:
        share = order.quota.share_request_ppm
        fits = all(self._free[ordinal] >= share for ordinal in order.ordinals)
        if fits and order.request_id not in self._leases:
            self._leases[order.request_id] = order
            for ordinal in order.ordinals:
                self._free[ordinal] -= share
        self._generation += 1
        return agent_pb2.GrantAnswer(
            request_id=order.request_id, attempt=order.attempt, granted=fits,
            generation=self._generation, sentence="" if fits else "the card is full",
        )  # fmt: skip

    def _revoke(self, request: str) -> None:
        order = self._leases.pop(request, None)
        for ordinal in order.ordinals if order is not None else ():
            self._free[ordinal] += order.quota.share_request_ppm
        self._generation += 1


async def main(manager: str, nodes: int, cards: int) -> None:
    """Runs all nodes until the standard input ends."""
    admitted = asyncio.Semaphore(0)
    async with grpc.aio.insecure_channel(manager) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)
        tasks = [
            asyncio.ensure_future(FakeNode(f"gpu-{n:04}", f"r{n // 32}", cards).run(stub, admitted))
            for n in range(nodes)
        ]
        for _ in tasks:
            await admitted.acquire()
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
