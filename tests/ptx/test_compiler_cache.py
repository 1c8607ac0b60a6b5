"""The compiler's cache of objects: its bound, and which compilers share it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ptx.compiling import (
    KERNEL,
    Accepting,
    Client,
    folder_bytes,
    kernels,
    start,
)

from rgpu_emu.compile_cache import ObjectCache


def test_the_second_process_finds_the_cache(tmp_path: Path) -> None:
    replies = []
    for _ in range(2):
        ours, theirs = socket.socketpair()
        process = start(tmp_path, "--fd", theirs)
        theirs.close()
        client = Client(ours)
        key = client.load(KERNEL).key
        replies.append(client.lower(key, "add_one"))
        ours.close()
        assert process.wait(30) == 0
    files = sorted(p.suffix for p in tmp_path.rglob("*") if p.is_file())
    assert replies[0] == replies[1]
    assert files == [".load", ".obj"]


def test_kernels_of_one_name_in_two_modules_are_two_objects(tmp_path: Path) -> None:
    """Also for the next compiler, which has them from the folder."""
    for _ in range(2):
        ours, theirs = socket.socketpair()
        process = start(tmp_path, "--fd", theirs)
        theirs.close()
        client = Client(ours)
        keys = [client.load(text).key for text in (KERNEL, KERNEL.replace(", 1;", ", 2;"))]
        one, two = (client.lower(key, "add_one") for key in keys)
        assert one.result == two.result == 0
        assert one != two
        ours.close()
        assert process.wait(30) == 0


def test_programs_that_share_a_folder_all_remember(tmp_path: Path) -> None:
    ends = [socket.socketpair() for _ in range(2)]
    processes = [start(tmp_path, "--fd", theirs) for _, theirs in ends]
    clients = [Client(ours) for ours, _ in ends]
    for client, (_, theirs) in zip(clients, ends, strict=True):
        theirs.close()
        assert client.load(KERNEL + "\n" * len(ends)).result == 0
    for n, client in enumerate(clients):
        key = client.load(KERNEL + f"// {n}\n").key
        assert client.lower(key, "add_one").result == 0
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 5
    for client, process in zip(clients, processes, strict=True):
        client.sock.close()
        assert process.wait(30) == 0


def test_the_cache_of_a_tenant_has_one_bound_for_all_connections(tmp_path: Path) -> None:
    """Twenty connections store twice the bound."""
    limit = 256 << 10
    with Accepting(tmp_path, "--cache-bytes", str(limit)) as compiler:
        clients = [compiler.connect() for _ in range(20)]
        for n, client in enumerate(clients):
            data = ", ".join("7" for _ in range(20_000))
            text = kernels(1) + f".visible .global .align 1 .b8 data{n}[20000] = {{{data}}};\n"
            assert client.load(text).result == 0
            assert folder_bytes(tmp_path / "tenant") <= limit
        assert folder_bytes(tmp_path / "tenant") > limit // 2


def test_another_process_with_the_same_folder_keeps_to_the_same_bound(tmp_path: Path) -> None:
    """The compiler of an earlier server may still store there."""
    one, two = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    caches = [ObjectCache(one, limit_bytes=100_000), ObjectCache(two, limit_bytes=100_000)]
    for n in range(40):
        caches[n % 2].put(f"{n}", bytes(9000))
        assert folder_bytes(tmp_path) <= 100_000
    assert caches[0].get("39") == bytes(9000)
    os.close(one)
    os.close(two)
