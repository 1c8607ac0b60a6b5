"""Network devices out of a /sys that is made of files."""

from __future__ import annotations

from pathlib import Path

from netprobe.netdev import has_rdma, net_devices, reachable_addresses


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def machine(tmp_path: Path) -> Path:
    """A card with an RDMA port, a bridge, a device that is down, an IPoIB device."""
    sys = tmp_path / "sys"
    card = sys / "devices" / "pci0" / "0000:01:00.0"
    write(card, numa_node="1")
    net = sys / "class" / "net"
    write(net / "eth9", type="1", speed="100000", mtu="9000", operstate="up", flags="0x1003")
    (net / "eth9" / "device").symlink_to(card)
    write(net / "br9", type="1", speed="-1", mtu="1500", operstate="up", flags="0x1003")
    (net / "br9" / "bridge").mkdir()
    write(net / "eth8", type="1", mtu="1500", operstate="down", flags="0x1002")
    (net / "eth8" / "device").symlink_to(sys / "devices" / "pci0")
    write(net / "ib0", type="32", speed="-1", mtu="2044", operstate="up", flags="0x1003")
    write(net / "odd")
    device = sys / "class" / "infiniband" / "mlx5_0"
    write(device / "ports" / "1", state="4: ACTIVE", rate="100 Gb/sec (4X EDR)",
          link_layer="Ethernet")  # fmt: skip
    (device / "device").symlink_to(card)
    proc = tmp_path / "proc"
    write(proc / "net", if_inet6="20010db8000000000000000000000005 02 40 00 80     eth9")
    return tmp_path


def test_devices_are_described(tmp_path: Path) -> None:
    root = machine(tmp_path)
    found = {d.name: d for d in net_devices(root / "sys", root / "proc")}
    assert sorted(found) == ["br9", "eth8", "eth9", "ib0"]
    eth9 = found["eth9"]
    assert (eth9.kind, eth9.up, eth9.speed_mbps, eth9.numa_node, eth9.mtu) == (
        "ethernet", True, 100000, 1, 9000,
    )  # fmt: skip
    assert eth9.addresses == ("2001:db8::5",)
    (port,) = eth9.rdma_ports
    assert (port.device, port.port, port.active, port.link_layer, port.speed_mbps) == (
        "mlx5_0", 1, True, "Ethernet", 100000,
    )  # fmt: skip
    assert port.numa_node == 1
    assert (found["br9"].kind, found["br9"].speed_mbps) == ("bridge", None)
    assert not found["eth8"].up
    assert found["ib0"].kind == "infiniband"
    assert reachable_addresses(list(found.values())) == ["2001:db8::5"]
    assert has_rdma(root / "sys")


def test_a_machine_without_sys_has_none(tmp_path: Path) -> None:
    assert net_devices(tmp_path, tmp_path) == []
    assert not has_rdma(tmp_path)


def test_this_machine_has_a_loopback() -> None:
    (loopback,) = [d for d in net_devices() if d.name == "lo"]
    assert loopback.kind == "loopback"
    assert "127.0.0.1" in loopback.addresses or not loopback.up
