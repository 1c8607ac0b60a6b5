"""The `rgpu` command as a user meets it: every mistake is answered by a sentence and an exit
code.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.command import WEAK_ISOLATION
from helpers.command import run_rgpu_plain as rgpu
from helpers.granting import granting
from helpers.ports import free_port

from rgpu_common import command as rgpu_command
from rgpu_common import ending, version_line
from rgpu_common.command import all_commands, grouped, parser_of
from rgpu_common.help_pages import CALLED_HERE, GROUPS, OPTIONS_HERE

RGPU = str(Path(sys.executable).parent / "rgpu")
COMMANDS = ["demo", "devices", "drain", "lease", "probe", "ps", "run", "serve", "tenants", "trace"]
COMMANDS += ["agent", "agent-node", "device-plugin", "explain", "gate-watchdog", "node-plugin"]
COMMANDS += [
    "doctor",
    "legacy-controllers",
    "manager",
    "pool",
    "reserve",
    "undrain",
    "units-webhook",
]


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns what `rgpu ... --help` prints. It is the same in this process, and starts none."""
    with pytest.raises(SystemExit) as ended:
        rgpu_command.main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_lists_the_commands_of_all_rooms() -> None:
    done = rgpu("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert rgpu().returncode == 2


def test_each_command_is_in_one_group_and_each_hint_names_one() -> None:
    known = {one.name for one in all_commands()}
    listed = [name for names in GROUPS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) <= known
    assert grouped([*known, "foreign"])["others"] == ["agent", "completion", "foreign"]
    assert not set(CALLED_HERE) & {*known, "help"}
    named = {found for said in CALLED_HERE.values() for found in re.findall(r"`rgpu (\w+)", said)}
    assert named <= {*known, "help"}


def test_each_hint_about_an_option_names_one_and_is_about_none() -> None:
    for command, hints in OPTIONS_HERE.items():
        (found,) = (one for one in all_commands() if f"rgpu {one.name}" == command)
        options = set(parser_of(found)._option_string_actions)
        assert not options & set(hints)
        named = {word for said in hints.values() for word in re.findall(r"--[a-z]+", said)}
        assert named <= options


def test_the_version_names_the_protocol_and_the_build() -> None:
    said = rgpu("--version").stdout
    assert said == rgpu("-V").stdout == f"{version_line()}\n"
    assert re.fullmatch(
        r"rgpu [0-9]+\.[0-9]\S* \(protocol 1\.[0-9]+; commit \w+, \w+ [0-9.]+, \w+\)\n", said
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = help_of(capsys, command)
    assert said.startswith(f"usage: rgpu {command}")
    # argparse formats the texts of options, and no text below them.
    assert "%%" not in said


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (("run",), "ucx:HOST:PORT, "),
        (("trace",), "ucx:HOST:PORT, "),
        *[((name,), "") for name in ("devices", "ps", "top", "drain", "undrain", "tenants")],
        (("lease", "list"), ""),
        (("quota", "report"), ""),
    ],
)
def test_help_names_the_addresses_that_are_taken(
    arguments: tuple[str, ...], more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = " ".join(help_of(capsys, *arguments).split())
    kinds = f"HOST:PORT, tls:HOST:PORT, {more}grpc[s]:HOST:PORT, unix:/PATH or shm:/PATH (default"
    assert kinds in said


def test_help_of_serve_names_the_addresses_that_are_taken() -> None:
    said = " ".join(rgpu("serve", "--help").stdout.split())
    kinds = "HOST:PORT, tls:HOST:PORT, ucx:HOST:PORT, grpc[s]:HOST:PORT or unix:/PATH; may be"
    assert kinds in said


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (
            ("zzz",),
            2,
            "there is no command 'zzz'; `rgpu --help` shows all of them",
        ),
        (("kill", "x"), 2, "there is no command 'kill'; here it is `rgpu cancel NAME`"),
        (("squeue",), 2, "here it is `rgpu ps`"),
        (("version",), 2, "here it is `rgpu --version`"),
        (("serv",), 2, "there is no command 'serv' (did you mean serve?); `rgpu --help`"),
        (
            ("run", "--gres=gpu:1", "--", "true"),
            2,
            "--gres=gpu:1 (here it is --cards; --share says",
        ),
        (("run", "-it", "--", "true"), 2, "-it (the program has this terminal: leave it out)"),
        (("smi", "-L"), 2, "-L (here it is `rgpu devices`); see `rgpu smi --help`"),
        (("run", "--cards", "2", "--server", "a:1", "--", "true"), 2, "--cards is for a cluster"),
        (("ps", "--server", "a:b"), 2, "--server: 'a:b' is not an address"),
        (("run", "--device", "cuda:0", "--", "true"), 2, "--device: 'cuda:0' is not a device"),
        (("run", "--weight", "lots", "--", "true"), 2, "a weight is a whole number from 1 to 1000"),
        (("run", "--", "no_such.py"), 127, "a Python program is run as: python no_such.py"),
        (("serve", "--tokens", "/no/t", "--listen", "unix:/tmp/x"), 2, "`rgpu token new TENANT --"),
        (("probe", "--bytes", "25%"), 2, "'25%' is not a number of bytes"),
        (("serve", "--devices", "x"), 2, "unrecognized arguments: --devices x"),
        (("run", "--memroy", "1GiB", "--", "true"), 2, "--memroy (did you mean --memory?); see `"),
        (("lease", "list", "--tenat=x"), 2, "--tenat=x (did you mean --tenant?); see `rgpu lease"),
        (("serve", "--device", "x"), 2, "'x' is not a device"),
        (("serve", "--listen", "x:y"), 2, "'x:y' is not an address"),
        (("serve", "--listen", "0.0.0.0:1"), 2, "--insecure"),
        (("serve", "--config", "/nowhere.toml"), 2, "/nowhere.toml: there is no such file"),
        (("serve", "--log-level", "loud"), 2, "--log-level"),
        (("devices", "--server", "127.0.0.1:1"), 1, "nothing listens at 127.0.0.1:1"),
        (("ps", "--server", "unix:/nowhere"), 1, "no server listens at unix:/nowhere"),
        (("probe", "127.0.0.1:1"), 1, "nothing listens at 127.0.0.1:1"),
        (("probe", "unix:/nowhere"), 1, "no server listens at unix:/nowhere"),
        (("run",), 2, "say which program to run"),
        (("run", "--"), 2, "say which program to run"),
        (("run", "--memory", "x", "--", "true"), 2, "--memory: 'x' is not a number of bytes"),
        # A value that begins with a dash is one, and no option.
        (("run", "--memory", "-1GiB", "--", "true"), 2, "--memory: '-1GiB' is not a number of"),
        (("lease", "resize", "x", "--memory", "-1GiB"), 2, "'-1GiB' is not a number of bytes"),
        (("run", "--memory", "lots", "--", "true"), 2, "or a percentage such as 25%"),
        (("run", "--memory", "150%", "--", "true"), 2, "write at most 100%"),
        (("run", "--share", "2", "--", "true"), 2, "'2' is not a share"),
        (("run", "--", "no-such-program-here"), 127, "there is no program 'no-such-program-here'"),
        (("run", "--hold", "--server", "127.0.0.1:1", "--", "true"), 125, "nothing listens at"),
        (("run", "--policy", "greedy", "--", "true"), 2, "invalid choice: 'greedy'"),
        (("run", "--priority", "101", "--", "true"), 2, "a priority is a whole number from 0 to"),
        (("run", "--share", "200vcore", "--", "true"), 2, "'200vcore' is 2 whole devices"),
        (("lease",), 2, "the following arguments are required: VERB"),
        (("lease", "list", "--server", "127.0.0.1:1"), 1, "nothing listens at 127.0.0.1:1"),
        (("devices", "--server", "no.invalid:1"), 1, "'no.invalid' cannot be resolved"),
        (("lease", "resize"), 2, "the following arguments are required: LEASE"),
        (("drain", "--end-after", "x"), 2, "--end-after takes a number of seconds, not 'x'"),
        (("lease", "grant", "k", "--ttl", "1h"), 2, "--ttl takes a number of seconds, not '1h'"),
        (("serve", "--device", "emulated:900000TiB"), 2, "device has at most 512 GiB"),
        (("trace", "--", "no-such-program-here"), 127, "there is no program"),
        (("trace", "--", "/etc/passwd"), 126, "'/etc/passwd' is not executable"),
        (("run", "--transport", "shm", "--server", "127.0.0.1:1", "--", "true"), 125, "its socket"),
        (("trace",), 2, "say which program to run: rgpu trace"),
        (("agent", "--server", "x:1", "--listen", "unix:/x"), 2, "x:1 needs no agent"),
        (("agent", "--server", "grpc:x", "--listen", "x:1"), 2, "'x:1' is not unix:/PATH"),
        (
            ("agent", "--server", "grpc:x", "--listen", "unix:/no/x"),
            1,
            "cannot listen on unix:/no/x",
        ),
        (("serve", "--listen", "grpc:127.0.0.1:1"), 2, "--insecure"),
        (("serve", "--listen", "grpcs:127.0.0.1:1"), 2, "tls.certificate"),
        (
            ("devices", "--server", "grpc:127.0.0.1:1"),
            1,
            "no rgpu server answers at grpc:127.0.0.1:1",
        ),
        (("trace", "--server", "127.0.0.1:1", "--", "true"), 125, "nothing listens at"),
        (("run", "--server", "127.0.0.1:1", "--", "true"), 125, "nothing listens at"),
        (("run", "--", "/"), 126, "'/' is a folder, not a program"),
        (("run", "--", "/etc/passwd"), 126, "'/etc/passwd' is not executable"),
        (("run", "--", "/no/such"), 127, "there is no file '/no/such'"),
        (("run", "--memory", "3.5", "--", "true"), 2, "'3.5' is not a whole number of bytes"),
        (("probe", "--seconds", "0"), 2, "--seconds is 0"),
        (("probe", "--server", "127.0.0.1:1"), 1, "nothing listens at 127.0.0.1:1"),
        (("probe", "--server", "a:1", "b:1"), 2, "name the server once"),
        (("serve", "--metrics", "127.0.0.1"), 2, "'127.0.0.1' is not HOST:PORT"),
        (("serve", "--listen", "unix:/etc"), 1, "the path exists and is not a socket"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], status: int, sentence: str) -> None:
    done = rgpu(*arguments)
    assert done.returncode == status, done.stderr
    assert sentence in done.stderr
    assert done.stderr.startswith("rgpu: ")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_somebody_else_has() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = rgpu("serve", "--listen", f"127.0.0.1:{port}", "--device", "emulated:1GiB")
    assert done.returncode == 1
    assert f"rgpu: cannot listen on 127.0.0.1:{port}: Address already in use; end" in done.stderr


def test_a_cache_that_cannot_be_written_to(tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text("[emulated]\ncache = '/proc/rgpu'\n")
    done = rgpu("serve", "--config", str(config), "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert "emulated.cache: '/proc/rgpu' is not a folder that can be written to" in done.stderr


def test_a_variable_that_makes_no_sense() -> None:
    for name, text in (("DEVICE", "one"), ("MEMORY", "2XB"), ("SHARE", "3")):
        done = rgpu("run", "--hold", "--", "true", **{f"RGPU_{name}": text})
        assert done.returncode == 2
        assert done.stderr.startswith(f"rgpu: RGPU_{name}: '{text}' ")


# Where the tests' user is not root, other measures would be asked for first.
SERVE_CUDA = ("serve", "--listen", "127.0.0.1:0", "--device", "cuda", WEAK_ISOLATION)


def test_a_driver_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "libcuda.so.1"
    done = rgpu(*SERVE_CUDA, RGPU_LIBCUDA=str(missing))
    assert done.returncode == 1
    assert "libcuda.so.1 was not found" in done.stderr


def test_our_own_library_is_not_served() -> None:
    from rgpu_client import library_path

    shim = library_path() / "libcuda.so.1"
    done = rgpu(*SERVE_CUDA, RGPU_LIBCUDA=str(shim))
    assert done.returncode == 1
    assert "is rgpu's own client library, not NVIDIA's driver" in done.stderr


def test_a_stranger_at_the_port_is_told_from_a_server() -> None:
    class Stranger(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stranger) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        done = rgpu("probe", f"127.0.0.1:{other.server_address[1]}")
        other.shutdown()
        serving.join()
    assert done.returncode == 1
    assert "does not answer as an rgpu server" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files_stop_nobody(tmp_path: Path, closed: str) -> None:
    wrote = tmp_path / "wrote"
    with granting() as server:
        for words in (f"{RGPU} run -v --server {server} -- touch {wrote}", f"{RGPU} --version"):
            done = subprocess.run(
                ["sh", "-c", f"exec {words} {closed}"], cwd="/", capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert wrote.exists()


def test_a_trace_of_a_program_without_cuda_says_so() -> None:
    with granting() as server:
        done = rgpu("trace", "--server", server, "--", "true")
    assert done.returncode == 1
    assert "the program made no CUDA call" in done.stderr


def test_run_gives_the_program_its_environment_and_exit_code() -> None:
    script = (
        "import os, sys; print(os.environ['RGPU_MEMORY'], os.environ['RGPU_SERVER'], "
        "os.environ['LD_LIBRARY_PATH'].split(':')[0]); sys.exit(7)"
    )
    with granting() as server:
        run = ("run", "--memory", "1GiB", "--server", server)
        done = rgpu(*run, "--", sys.executable, "-c", script)
    assert done.returncode == 7
    from rgpu_client import library_path

    assert done.stdout.split() == [str(1 << 30), server, str(library_path())]


# Ctrl-C comes while the command is imported, and after it has ended.
_TOLD_IN_AN_IMPORT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
_TOLD_AT_THE_END = (
    "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
)


@pytest.mark.parametrize(
    ("module", "text"),
    [("argparse.py", _TOLD_IN_AN_IMPORT), ("sitecustomize.py", _TOLD_AT_THE_END)],
)
def test_ctrl_c_leaves_no_traceback_at_either_end(tmp_path: Path, module: str, text: str) -> None:
    (tmp_path / module).write_text(text)
    done = rgpu("help", "top", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_ctrl_c_stays_ignored_for_whoever_was_told_so(tmp_path: Path) -> None:
    """As `nohup` and a shell's `&` do."""
    (tmp_path / "sitecustomize.py").write_text(_TOLD_AT_THE_END)
    line = f"trap '' INT; PYTHONPATH={tmp_path} exec {RGPU} --version"
    done = subprocess.run(
        ["sh", "-c", line], cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# SIGTERM comes when Python imports this module, or calls this function of one, or as it ends.
_TOLD_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder
class Telling(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {moment!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)
sys.modules.pop({moment!r}, None)
sys.meta_path.insert(0, Telling())
"""
_TOLD_AS_IT_BINDS = """
import os, signal, sys
def told(event, arguments):
    if event == "socket.bind" and not done:
        done.append(event)
        os.kill(os.getpid(), signal.SIGTERM)
done = []
sys.addaudithook(told)
"""
_TOLD_TWICE = """
import atexit, os, signal, sys
if "rgpu" in sys.argv[0]:
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))
"""
_AGENT = ("agent", "--server", "grpc:127.0.0.1:1", "--listen")


@pytest.mark.parametrize("moment", ["argparse", "rgpu_common.command"])
@pytest.mark.parametrize("command", sorted(ending.SERVING))
def test_sigterm_ends_a_command_that_serves_with_success_while_it_imports(
    tmp_path: Path, command: str, moment: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_TOLD_AT.format(moment=moment))
    done = rgpu(command, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("text", [_TOLD_AT.format(moment="uvloop"), _TOLD_AS_IT_BINDS])
@pytest.mark.parametrize("command", ["agent", "serve", "manager"])
def test_sigterm_ends_a_command_that_serves_with_success_before_it_serves(
    tmp_path: Path, command: str, text: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(text)
    socket = f"unix:{tmp_path}/s"
    words = {
        "agent": (*_AGENT, socket),
        "manager": ("manager", "--listen", f"127.0.0.1:{free_port()}"),
        "serve": ("serve", "--listen", socket, "--device", "emulated:64MiB", WEAK_ISOLATION,
                  "--state-dir", str(tmp_path / "state")),
    }[command]  # fmt: skip
    done = rgpu(*words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "s").exists()


def test_sigterm_at_the_end_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_TOLD_TWICE)
    with subprocess.Popen(
        [RGPU, *_AGENT, f"unix:{tmp_path}/s"], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ) as agent:  # fmt: skip
        assert agent.stdout is not None
        agent.stdout.readline()
        agent.terminate()
        assert agent.wait(60) == 0
    assert not (tmp_path / "s").exists()


def test_other_commands_die_of_sigterm(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_TOLD_AT.format(moment="argparse"))
    assert rgpu("ps", PYTHONPATH=str(tmp_path)).returncode == -signal.SIGTERM
