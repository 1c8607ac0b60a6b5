"""What gRPC alone costs on this machine: a bidirectional stream of grpc.aio on uvloop.

Two floors of a copy: one message sent again and again to who only counts it, which stays in the
processor's cache, and 64 MiB of memory here that end in 64 MiB of memory there, as a copy does.

`python -m benchmarks.grpc_floor serve` prints its port; `... measure PORT ROUNDS` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MIB = 1 << 20
COPY_BYTES = 64 * MIB
_COPIES = 3


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: grpc.HandlerCallDetails) -> Any:
        answer = {
            "/floor/Echo": _echo,
            "/floor/Up": _up,
            "/floor/Down": _down,
            "/floor/UpMemory": _up_memory,
            "/floor/DownMemory": _down_memory,
        }[details.method]
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


async def _up_memory(_: Any, context: Any) -> None:
    memory = bytearray(COPY_BYTES)
    while await _fill(context.read, memory):
        await context.write(b"x")


async def _down(_: Any, context: Any) -> None:
    await _answer(context, [os.urandom(MIB)] * (COPY_BYTES // MIB))


async def _down_memory(_: Any, context: Any) -> None:
    await _answer(context, _source())


async def _answer(context: Any, messages: list[bytes]) -> None:
    while await context.read() is not grpc.aio.EOF:
        for message in messages:
            await context.write(message)


def _source() -> list[bytes]:
    """Memory that is sent without another copy."""
    return [os.urandom(MIB) for _ in range(COPY_BYTES // MIB)]


async def _fill(read: Callable[[], Awaitable[Any]], memory: bytearray) -> bool:
    """Reads messages to their places; False: the stream has ended."""
    count = 0
    while count < len(memory):
        message = await read()
        if message is grpc.aio.EOF:
            return False
        memory[count : count + len(message)] = message
        count += len(message)
    return True


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


async def _times(copy: Callable[[], Awaitable[object]]) -> list[int]:
    times = []
    for number in range(_COPIES + 1):
        started = time.perf_counter_ns()
        await copy()
        if number:
            times.append(time.perf_counter_ns() - started)
    return times


async def _uploads(channel: grpc.aio.Channel, method: str, messages: list[bytes]) -> list[int]:
    call = channel.stream_stream(method)()

    async def copy() -> None:
        for message in messages:
            await call.write(message)
        await call.read()

    times = await _times(copy)
    call.cancel()
    return times


async def _downloads(channel: grpc.aio.Channel, method: str, memory: bytearray) -> list[int]:
    """memory: where they end; empty: nowhere."""
    call = channel.stream_stream(method)()

    async def copy() -> None:
        await call.write(b"x")
        if memory:
            await _fill(call.read, memory)
            return
        for _ in range(COPY_BYTES // MIB):
            await call.read()

    times = await _times(copy)
    call.cancel()
    return times


async def _measure(port: str, rounds: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        figures = {
            "ping_ns": await _pings(channel, rounds),
            "up_ns": await _uploads(channel, "/floor/Up", [os.urandom(MIB)] * (COPY_BYTES // MIB)),
            "down_ns": await _downloads(channel, "/floor/Down", bytearray()),
            "up_memory_ns": await _uploads(channel, "/floor/UpMemory", _source()),
            "down_memory_ns": await _downloads(channel, "/floor/DownMemory", bytearray(COPY_BYTES)),
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
