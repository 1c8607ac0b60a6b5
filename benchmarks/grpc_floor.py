"""What gRPC alone costs on this machine: a bidirectional stream of grpc.aio on uvloop.

`python -m benchmarks.grpc_floor serve` prints its port; `... measure PORT ROUNDS` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

import grpc

MIB = 1 << 20
COPY_BYTES = 64 * MIB
_COPIES = 3


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: grpc.HandlerCallDetails) -> Any:
        answer = {"/floor/Echo": _echo, "/floor/Up": _up, "/floor/Down": _down}[details.method]
        return grpc.stream_stream_rpc_method_handler(answer)


async def _echo(_: Any, context: Any) -> None:
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(message)


async def _up(_: Any, context: Any) -> None:
    count = 0
    while (message := await context.read()) is not grpc.aio.EOF:
        count += len(message)
        if count == COPY_BYTES:
            await context.write(b"x")
            count = 0


async def _down(_: Any, context: Any) -> None:
    chunk = os.urandom(MIB)
    while await context.read() is not grpc.aio.EOF:
        for _ in range(COPY_BYTES // MIB):
            await context.write(chunk)


async def _serve() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def _pings(channel: grpc.aio.Channel, rounds: int) -> list[int]:
    call = channel.stream_stream("/floor/Echo")()
    message, times = b"x" * 64, []
    for number in range(rounds + 100):
        started = time.perf_counter_ns()
        await call.write(message)
        await call.read()
        if number >= 100:
            times.append(time.perf_counter_ns() - started)
    call.cancel()
    return times


async def _copies(channel: grpc.aio.Channel, method: str) -> list[int]:
    call = channel.stream_stream(method)()
    chunk, times = os.urandom(MIB), []
    for number in range(_COPIES + 1):
        started = time.perf_counter_ns()
        if method == "/floor/Up":
            for _ in range(COPY_BYTES // MIB):
                await call.write(chunk)
            await call.read()
        else:
            await call.write(b"x")
            for _ in range(COPY_BYTES // MIB):
                await call.read()
        if number:
            times.append(time.perf_counter_ns() - started)
    call.cancel()
    return times


async def _measure(port: str, rounds: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        figures = {
            "ping_ns": await _pings(channel, rounds),
            "up_ns": await _copies(channel, "/floor/Up"),
            "down_ns": await _copies(channel, "/floor/Down"),
        }
    print(json.dumps({name: statistics.median(times) for name, times in figures.items()}))


def main() -> None:
    import uvloop

    uvloop.install()
    if sys.argv[1] == "serve":
        asyncio.run(_serve())
    else:
        asyncio.run(_measure(sys.argv[2], int(sys.argv[3])))


if __name__ == "__main__":
    main()
