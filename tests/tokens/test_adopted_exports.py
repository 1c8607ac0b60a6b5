"""What sessions have exported and opened outlives the daemon, and so do the charges."""

from __future__ import annotations

from pathlib import Path

from helpers.sharing import MIB, await_used, processes

from tokens.test_adoption import Kept, crash


def test_the_next_daemon_charges_for_what_an_exporter_leaves(tmp_path: Path) -> None:
    state, address = tmp_path / "state", f"unix:{tmp_path}/s"
    with Kept(state) as first, processes(address, "kept", 3) as (one, two, three):
        total = int(three.run("say(cuda.memory()[1])"))
        token = one.run(f"a = cuda.alloc({64 * MIB})\ncuda.upload(a, b'kept')\nsay(ipc.export(a))")
        two.run(f"b = ipc.open({token!r})\nsay(1)")
        crash(first)
        with Kept(state):
            # What was exported before is opened through the next daemon.
            three.run(f"b = ipc.open({token!r})\nsay(1)")
            one.kill()
            await_used(three, 64 * MIB)
            three.run(f"fails(2, cuda.alloc, {total - 60 * MIB})\nsay(1)")
            assert two.run("say(cuda.download(b, 4))") == str(b"kept")
            two.run("ipc.close(b)\nsay(1)")
            await_used(three, 64 * MIB)
            three.run("ipc.close(b)\nsay(1)")
            await_used(three, 0)


def test_an_exporter_that_ends_without_a_daemon(tmp_path: Path) -> None:
    state, address = tmp_path / "state", f"unix:{tmp_path}/s"
    with Kept(state) as first, processes(address, "kept", 2) as (one, two):
        token = one.run(f"a = cuda.alloc({64 * MIB})\nsay(ipc.export(a))")
        two.run(f"b = ipc.open({token!r})\nsay(1)")
        crash(first)
        one.kill()
        with Kept(state):
            await_used(two, 64 * MIB)
            two.run("ipc.close(b)\nsay(1)")
            await_used(two, 0)
