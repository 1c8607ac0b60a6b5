"""What `rgpu probe --json` prints, as types."""

from __future__ import annotations

from typing import TypedDict

from netprobe.estimate import Bandwidth, RoundTrips  # noqa: TC001 (the schema resolves them)


class ProbedPath(TypedDict):
    """A measured path. Times in seconds, rates per second. error: why it does not work, else "".
    connect: until the transport was connected. handshake: until the server answered. seconds: how
    long the measurement took. server: the id of the server that answered, in hexadecimal.
    step_seconds: the expected time of a step of the workload; null if the path does not work.
    """

    uri: str
    kind: str
    error: str
    connect: float
    handshake: float
    round_trip: RoundTrips | None
    up: Bandwidth | None
    down: Bandwidth | None
    messages_per_second: float | None
    seconds: float
    server: str
    step_seconds: float | None


class DroppedPath(TypedDict):
    """A path of the server that was not measured."""

    uri: str
    reason: str


class ChosenPath(TypedDict):
    """The path that programs take."""

    uri: str
    reason: str


class RdmaPort(TypedDict):
    """A port in /sys/class/infiniband. speed_mbps: 0 if unknown."""

    device: str
    port: int
    active: bool
    link_layer: str
    speed_mbps: int
    numa_node: int | None


class NetDevice(TypedDict):
    """kind: ethernet, loopback, infiniband, wireless, bridge, bond, tunnel or virtual.
    speed_mbps, numa_node: None if unknown.
    """

    name: str
    kind: str
    up: bool
    speed_mbps: int | None
    numa_node: int | None
    mtu: int
    addresses: list[str]
    rdma_ports: list[RdmaPort]


class Probed(TypedDict):
    """What `rgpu probe --json` and `netprobe run --json` print; with `--watch` one object a line.
    server: the address that was asked. at: seconds since 1970. choice: null if no path works.
    proxies: variables that name a proxy. devices: the network devices of this machine.
    """

    server: str
    server_id: str
    same_host: bool
    at: float
    workload: str
    paths: list[ProbedPath]
    dropped: list[DroppedPath]
    choice: ChosenPath | None
    proxies: list[str]
    devices: list[NetDevice]
