"""A server on a machine that does not isolate its processes: it refuses to start, names the missing
measures and the remedy, and starts when the operator accepts these measures by name.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import rgpu_command
from helpers.needs import needs
from helpers.refusing import refusing
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.parts import compiled_part

SERVE = (rgpu_command(), "serve", "--listen", "127.0.0.1:0", "--device", "emulated:256MiB")
DEADLINE_SECONDS = 120
NOBODY = 65534


def serve(*before: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, *SERVE, *more],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    ("call", "measure", "why"),
    [
        ("unshare", "network-namespace", "EPERM from unshare"),
        # Without root its processes have no user of their own either, and both are named.
        pytest.param(
            "landlock_create_ruleset=ENOSYS", "landlock", "ENOSYS from landlock_create_ruleset",
            marks=needs("root"),
        ),
        pytest.param("setresuid", "own-user", "EPERM from setresuid", marks=needs("root")),
    ],
)  # fmt: skip
def test_a_machine_without_a_measure_is_refused_with_the_flag_that_allows_it(
    call: str, measure: str, why: str
) -> None:
    done = serve(*refusing(call))
    assert done.returncode == 1
    assert done.stdout == ""
    assert why in done.stderr
    assert f"--allow-weak-isolation={measure}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("call", "measure"), [("capset", "capabilities"), ("seccomp", "system-calls")]
)
def test_what_nobody_can_do_without_cannot_be_allowed(call: str, measure: str) -> None:
    done = serve(*refusing(call))
    assert done.returncode == 1
    assert f"does not run without {measure}" in done.stderr
    done = serve(more=(f"--allow-weak-isolation={measure}",))
    assert done.returncode == 2
    assert f"{measure!r} is no measure that a server can do without" in done.stderr


def _says(server: Server, line: str) -> bool:
    return any(line in said for said in server.log)


@needs("root")
def test_what_is_allowed_by_name_is_said_and_measured() -> None:
    refused = refusing("unshare", "landlock_create_ruleset=EOPNOTSUPP")
    with Server(
        "--allow-weak-isolation=network-namespace,landlock",
        "--metrics", "127.0.0.1:0",
        strict=True,
        before=refused,
        device="emulated:256MiB",
    ) as server:  # fmt: skip
        code, output, errors = clients.run(server.tcp, "cuda.open(); print(cuda.memory()[1] > 0)")
        assert (code, output) == (0, "True\n"), errors
        for line in ("worker without network-namespace", "worker without landlock",
                     "compiler without network-namespace"):  # fmt: skip
            wait_until(partial(_says, server, line))
        log = "".join(server.log)
        where = log.partition("metrics on http://")[2].partition("/")[0]
        metrics = _get(where, "metrics")
        assert (
            'rgpu_isolation_weakened{measure="network-namespace",process="worker"} 1.0' in metrics
        )
        health = _get(where, "health")
        assert health.startswith("ok\n")
        assert "weak isolation: worker: no landlock" in health


def test_a_machine_that_has_everything_needs_no_flag() -> None:
    with Server("--metrics", "127.0.0.1:0", strict=True, device="emulated:256MiB") as server:
        log = "".join(server.log)
        assert "isolation is weaker" not in log
        where = log.partition("metrics on http://")[2].partition("/")[0]
        assert _get(where, "health") == "ok\n"


@needs("root", "user-namespaces")
def test_a_worker_in_a_user_namespace_is_not_root() -> None:
    """Without CAP_SYS_ADMIN, as in a container, the network is left by way of a user namespace."""
    words = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    with Server(strict=True, before=words, device="emulated:256MiB") as server:
        code, output, errors = clients.run(server.tcp, "cuda.open(); print('open')")
        assert (code, output) == (0, "open\n"), errors
        # 65534: what a user without a name here looks like; it may be root.
        wait_until(lambda: all(_is_its_own(_users_of(pid)) for pid in server.children()))


def _is_its_own(users: list[str]) -> bool:
    return not {"0", "65534"} & set(users)


def _users_of(pid: int) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []  # it has ended
    return next(line.split()[1:] for line in lines if line.startswith("Uid:"))


def test_the_configuration_file_names_measures_too(tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text('[isolation]\nallow_weak = ["sandbox"]\n')
    done = serve(more=("--config", str(config)))
    assert done.returncode == 2
    assert "isolation.allow_weak" in done.stderr
    assert "network-namespace, own-user, landlock" in done.stderr


def _get(where: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{where}/{path}", timeout=DEADLINE_SECONDS) as answer:
        return str(answer.read().decode())


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that belongs to a user other than root."""
    with tempfile.TemporaryDirectory(prefix="rgpu-test-") as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@needs("root", "user-namespaces")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_cuda_device_needs_a_server_that_can_give_workers_their_own_user(
    folder: Path, allowed: bool
) -> None:
    """The emulated device takes the place of NVIDIA's library, and the server does not run
    as root.
    """
    library = compiled_part("rgpu_emu", "lib/librgpu_emu.so")
    environment = {**os.environ, "HOME": str(folder), "RGPU_LIBCUDA": str(library)}
    more = ["--allow-weak-isolation=own-user"] if allowed else []
    more += ["--state-dir", str(folder / "state")]
    # It may read wherever Python is installed.
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    user += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    command = [*user, rgpu_command(), "serve", "--listen", "127.0.0.1:0", "--device", "cuda", *more]
    server = subprocess.Popen(
        command,
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    line = server.stdout.readline()
    server.terminate()
    _, errors = server.communicate(timeout=DEADLINE_SECONDS)
    if allowed:
        assert line.startswith("rgpu: serving rgpu emulated device"), errors
        assert "cuda worker without own-user" in errors
    else:
        assert line == ""
        assert server.returncode == 1
        assert "does not give cuda worker a user of its own" in errors
        assert "--allow-weak-isolation=own-user" in errors
