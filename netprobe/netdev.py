"""Network devices of a machine, read from /sys."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYS = Path("/sys")
PROC = Path("/proc")
_ETHERNET, _INFINIBAND, _LOOPBACK, _TUNNELS = 1, 32, 772, (65534, 768, 769, 776, 778)
# Devices made by software, which usually do not carry traffic to other machines themselves.
SOFTWARE = ("loopback", "bridge", "tunnel", "virtual")


class RdmaPort(NamedTuple):
    """A port in /sys/class/infiniband. speed_mbps: 0 if unknown."""

    device: str
    port: int
    active: bool
    link_layer: str
    speed_mbps: int
    numa_node: int | None = None


class NetDevice(NamedTuple):
    """kind: ethernet, loopback, infiniband, wireless, bridge, bond, tunnel or virtual.
    speed_mbps, numa_node: None if unknown.
    """

    name: str
    kind: str
    up: bool
    speed_mbps: int | None
    numa_node: int | None
    mtu: int
    addresses: tuple[str, ...] = ()
    rdma_ports: tuple[RdmaPort, ...] = ()


def net_devices(sys: Path = SYS, proc: Path = PROC) -> list[NetDevice]:
    """Returns the network devices of this network namespace, sorted by name."""
    folder = sys / "class" / "net"
    addresses = _addresses(proc)
    ports = rdma_ports(sys)
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        device = _device(path)
        if device is None:
            continue
        mine = tuple(port for port, parent in ports if parent and parent == _parent(path))
        found.append(device._replace(addresses=addresses.get(device.name, ()), rdma_ports=mine))
    return found


def rdma_ports(sys: Path = SYS) -> list[tuple[RdmaPort, Path | None]]:
    """Returns all RDMA ports, each with its bus device."""
    found: list[tuple[RdmaPort, Path | None]] = []
    folder = sys / "class" / "infiniband"
    for device in sorted(folder.iterdir()) if folder.is_dir() else ():
        numa = _numa(device)
        ports = device / "ports"
        for port in sorted(ports.iterdir()) if ports.is_dir() else ():
            if not port.name.isdigit():
                continue
            # "4: ACTIVE", "100 Gb/sec (4X EDR)"
            active = _text(port / "state").startswith("4")
            rate = _text(port / "rate").split(" ")[0]
            speed = round(float(rate) * 1000) if _is_number(rate) else 0
            row = RdmaPort(device.name, int(port.name), active, _text(port / "link_layer"), speed,
                           numa)  # fmt: skip
            found.append((row, _parent(device)))
    return found


def has_rdma(sys: Path = SYS) -> bool:
    """Returns True if this machine has an active RDMA port."""
    return any(port.active for port, _ in rdma_ports(sys))


def reachable_addresses(devices: Sequence[NetDevice]) -> list[str]:
    """Returns the addresses at which other machines may reach this one, fast devices first."""
    there = [d for d in devices if d.up and d.kind not in SOFTWARE]
    there.sort(key=lambda device: -(device.speed_mbps or 0))
    return [text for device in there for text in device.addresses if _is_public(text)]


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def _device(path: Path) -> NetDevice | None:
    kind = _kind(path)
    if kind is None:
        return None
    speed = _integer(path / "speed")
    state = _text(path / "operstate")
    flags = int(_text(path / "flags") or "0", 16)
    # Devices that have no carrier report "unknown".
    up = bool(flags & 1) and state in ("up", "unknown", "")
    usable = speed if speed is not None and 0 < speed < 10_000_000 else None
    return NetDevice(path.name, kind, up, usable, _numa(path), _integer(path / "mtu") or 0)


def _kind(path: Path) -> str | None:
    hardware = _integer(path / "type")
    if hardware is None:
        return None
    if hardware == _LOOPBACK:
        return "loopback"
    if hardware == _INFINIBAND:
        return "infiniband"
    if hardware in _TUNNELS:
        return "tunnel"
    for name, kind in (("wireless", "wireless"), ("phy80211", "wireless"), ("bridge", "bridge"),
                       ("bonding", "bond"), ("tun_flags", "tunnel")):  # fmt: skip
        if (path / name).exists():
            return kind
    if hardware != _ETHERNET or not (path / "device").exists():
        return "virtual"
    return "ethernet"


def _parent(path: Path) -> Path | None:
    try:
        return (path / "device").resolve(strict=True)
    except OSError:
        return None


def _numa(path: Path) -> int | None:
    node = _integer(path / "device" / "numa_node")
    return node if node is not None and node >= 0 else None


def _addresses(proc: Path) -> Mapping[str, tuple[str, ...]]:
    """Returns addresses by interface: IPv6 from the kernel's list, IPv4 by asking each
    interface.
    """
    found: dict[str, tuple[str, ...]] = {}
    for _, name in _interfaces():
        address = _ipv4(name)
        if address is not None:
            found[name] = (address,)
    for line in _text(proc / "net" / "if_inet6").splitlines():
        words = line.split()
        if len(words) == 6 and len(words[0]) == 32:
            address = str(ipaddress.IPv6Address(int(words[0], 16)))
            found[words[5]] = (*found.get(words[5], ()), address)
    return found


def _interfaces() -> list[tuple[int, str]]:
    import socket

    try:
        return socket.if_nameindex()
    except OSError:
        return []


def _ipv4(name: str) -> str | None:
    import fcntl
    import socket
    import struct

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        answer = fcntl.ioctl(asked.fileno(), 0x8915, request)  # SIOCGIFADDR
        return socket.inet_ntoa(answer[20:24])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # some files of a device that is down cannot be read
        return ""


def _integer(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
