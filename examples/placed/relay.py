"""A slow network: passes connections on to a server, each byte later by a set time.

python relay.py PORT HOST:PORT MILLISECONDS
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

# So many chunks are on their way in one direction; then the sender waits.
ON_THE_WAY = 256


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(ON_THE_WAY)

    async def take() -> None:
        while data := await reader.read(1 << 16):
            await queue.put((loop.time() + seconds, data))
        await queue.put((loop.time() + seconds, b""))

    async def give() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            if not data:
                return
            writer.write(data)
            await writer.drain()

    taking = asyncio.create_task(take())
    try:
        await give()
    finally:
        taking.cancel()
        writer.close()


async def _serve(port: int, host: str, there: int, seconds: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(host, there)
            ways = (_carry(reader, far_writer, seconds), _carry(far_reader, writer, seconds))
            await asyncio.gather(*ways)
        writer.close()

    async with await asyncio.start_server(accept, ["0.0.0.0", "::"], port) as server:
        print(f"passes connections on to {host}:{there}, {1e3 * seconds:g} ms later", flush=True)
        await server.serve_forever()


def main() -> None:
    port, target, milliseconds = sys.argv[1:]
    host, _, there = target.rpartition(":")
    asyncio.run(_serve(int(port), host, int(there), float(milliseconds) / 1000))


if __name__ == "__main__":
    main()
