"""What a node in a network namespace lacks: kube-proxy, cluster DNS, and a way to the API server.

The API server listens on the machine's loopback address. Sockets of the node's namespace bring
connections there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lightkube import Client
from lightkube.resources.core_v1 import Service
from lightkube.resources.discovery_v1 import EndpointSlice
from typing_extensions import Self

from helpers.needs import program
from rgpu_common.closing import Closing

_NETWORK_NAMESPACE = 0x40000000  # CLONE_NEWNET
_SECONDS = 60
_LOOK_SECONDS = 1.0


class NodeNetwork(Closing):
    """namespace: the file of the node's network namespace. address: the node's. port: the API
    server's, here and there. pods: the addresses of pods.
    """

    def __init__(self, client: Client, namespace: str, address: str, port: int, pods: str) -> None:
        self._client, self._namespace = client, namespace
        self._address, self._port, self._pods = address, port, pods
        self._addresses: dict[str, str] = {}
        self._rules = ""
        tool = program("iptables", "iptables-restore")
        self._restore = ["nsenter", f"--net={namespace}", "--", tool]
        self._open_ends: list[Any] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="node-network")

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    async def _open(self) -> None:
        listener = self._socket(socket.SOCK_STREAM)
        listener.bind(("0.0.0.0", self._port))
        server = await asyncio.start_server(self._carry, sock=listener)
        self._open_ends.append(server)
        asked = self._socket(socket.SOCK_DGRAM)
        asked.bind((self._address, 53))
        names, _ = await self._loop.create_datagram_endpoint(
            lambda: _Names(self._addresses), sock=asked
        )
        self._open_ends.append(names)
        self._looking = self._loop.create_task(self._look())

    async def _end(self) -> None:
        """Takes no connection any more, and ends those that there are."""
        for one in self._open_ends:
            one.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        # A socket is closed in the next round of the loop.
        await asyncio.sleep(0)
        await self._loop.shutdown_default_executor()

    def _socket(self, kind: socket.SocketKind) -> socket.socket:
        """Returns a socket of the namespace: it stays there, whoever uses it."""

        def made() -> socket.socket:
            with open(self._namespace) as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NETWORK_NAMESPACE):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            one = socket.socket(socket.AF_INET, kind)
            one.setblocking(False)
            return one

        with ThreadPoolExecutor(1) as thread:  # the thread ends, and no other is in the namespace
            return thread.submit(made).result(_SECONDS)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Brings a connection to the API server."""
        with contextlib.closing(writer), contextlib.suppress(OSError):
            back, there = await asyncio.open_connection("127.0.0.1", self._port)
            ways = _pour(reader, there), _pour(back, writer)
            with contextlib.closing(there):
                await asyncio.wait(
                    [asyncio.create_task(one) for one in ways], return_when=asyncio.FIRST_COMPLETED
                )

    async def _look(self) -> None:
        """Brings names and rules up to date, again and again."""
        while True:
            # The API server may be away meanwhile.
            with contextlib.suppress(Exception):
                await self._loop.run_in_executor(None, self._update)
            await asyncio.sleep(_LOOK_SECONDS)

    def _update(self) -> None:
        rules = ["*nat", ":PREROUTING ACCEPT", ":OUTPUT ACCEPT", ":POSTROUTING ACCEPT"]
        for one in self._client.list(Service, namespace="*"):
            assert one.metadata
            assert one.spec
            name, namespace = one.metadata.name, one.metadata.namespace
            self._addresses[f"{name}.{namespace}.svc.cluster.local"] = str(one.spec.clusterIP)
            rules += _rules(str(one.spec.clusterIP), self._targets(one))
        between = f"-s {self._pods} -d {self._pods} -m conntrack --ctstate DNAT"
        text = "\n".join([*rules, f"-A POSTROUTING {between} -j MASQUERADE", "COMMIT", ""])
        if text != self._rules:
            subprocess.run(self._restore, input=text.encode(), check=True, timeout=_SECONDS)
            self._rules = text

    def _targets(self, service: Service) -> list[tuple[int, str]]:
        """Returns the ports of a Service, and where each leads: to the first end that is ready."""
        assert service.metadata
        assert service.spec
        name, namespace = str(service.metadata.name), str(service.metadata.namespace)
        if (namespace, name) == ("default", "kubernetes"):
            return [(443, f"{self._address}:{self._port}")]
        label = {"kubernetes.io/service-name": name}
        return [
            (one.port, f"{end.addresses[0]}:{port.port}")
            for found in self._client.list(EndpointSlice, namespace=namespace, labels=label)
            for end in [e for e in found.endpoints or [] if e.conditions and e.conditions.ready][:1]
            for one in service.spec.ports or []
            for port in found.ports or []
            if port.name == one.name
        ]


def _rules(address: str, targets: list[tuple[int, str]]) -> list[str]:
    """Returns rules by which pods and the node itself reach a Service."""
    return [
        f"-A {chain} -d {address}/32 -p tcp --dport {port} -j DNAT --to-destination {target}"
        for port, target in targets
        for chain in ("PREROUTING", "OUTPUT")
    ]


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()


class _Names(asyncio.DatagramProtocol):
    """Answers who asks for the address of a Service."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self._addresses = addresses

    def connection_made(self, transport: Any) -> None:
        self._send: Callable[[bytes, Any], None] = transport.sendto

    def datagram_received(self, data: bytes, who: Any) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += data[at] + 1
        (kind,) = struct.unpack_from("!H", data, at + 1)
        address = self._addresses.get(".".join(labels))
        answers = [address] if address and kind == 1 else []
        flags = 0x8580 if address else 0x8583  # a name that is not there
        head = struct.pack("!HHHHH", flags, 1, len(answers), 0, 0)
        rows = [
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 5, 4) + socket.inet_aton(a) for a in answers
        ]
        self._send(data[:2] + head + data[12 : at + 5] + b"".join(rows), who)
