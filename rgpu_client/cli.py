"""`rgpu run` and `trace`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from netprobe.candidates import TRANSPORTS
from rgpu_client.arrays.running import with_advice, with_arrays, with_torch
from rgpu_client.cluster.options import Wanted, add_options, wanted
from rgpu_client.device_names import parse_devices
from rgpu_client.program import (
    background_run,
    before_start,
    cannot_start,
    find_program,
    keep_started,
    say_not_started,
    say_starting,
)
from rgpu_client.program_environment import client_environment, library_path
from rgpu_client.session.audit import is_loud
from rgpu_client.session.check import FOR_EVER, claimed, wait_seconds
from rgpu_client.session.greeting import program_name, run_name
from rgpu_client.session.launch import api_server, carried
from rgpu_client.session.routes import check_secured_paths, on_paths
from rgpu_client.settings import DEFAULT_SERVER, SESSION_SERVER_HELP, ClientSettings
from rgpu_client.sizes import sizes_of
from rgpu_client.variables import variable
from rgpu_common.command import FAILED, Command
from rgpu_common.endpoints import speaks_tls
from rgpu_common.errors import NoSessionError, RgpuError, ServerError, UnsecuredError, UsageError
from rgpu_common.sharing import POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.control import LeaseRequest
    from rgpu_common.endpoints import Endpoint

# How often a run is placed whose server then does not take it.
_TRIES = 3
_EPILOG = (
    "Example: {command} --server gpu-node:7700 --memory 2GiB -- python train.py.  A server that "
    "other machines can reach asks for an access token: RGPU_TOKEN_FILE names the file that holds "
    "it.  "
    "`rgpu help client` has all variables and the exit codes."
)


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [OPTIONS] -- PROGRAM [ARGUMENTS]"
    parser.epilog = _EPILOG.format(command=parser.prog)
    parser.add_argument("--server", metavar="ADDRESS", help=SESSION_SERVER_HELP)
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS,
        help="how to reach the server (default: RGPU_TRANSPORT, then auto: the best of its paths)",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say which path was chosen, and why"
    )
    parser.add_argument(
        "--device",
        metavar="N",
        help="device, or several: 0,1, or 0,1@HOST:PORT of another server (default: any one)",
    )
    add_size_options(parser)
    add_name_option(parser)
    parser.add_argument(
        "--lease",
        metavar="NAME",
        help="join the lease of this name (default: RGPU_LEASE, then a lease of its own)",
    )
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program and its arguments",
    )


def add_size_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the sizes of a lease, and for its tenant."""
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory limit: 2GiB, 25%%, or 8vmem in units of 256 MiB"
    )
    parser.add_argument(
        "--share", metavar="PART", help="guaranteed part of the device: 0.4, 40%% or 40vcore"
    )
    parser.add_argument("--limit", metavar="PART", help="cap on that share: 0.7")
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        help="fixed: limit = share; burst: limit = 1; best-effort: share = 0; none: as given",
    )
    parser.add_argument(
        "--priority", metavar="N", help="a higher priority gets idle time first: 0-100"
    )
    parser.add_argument(
        "--weight", metavar="N", help="part of the idle time among equal priorities: 1-1000"
    )
    parser.add_argument("--tenant", metavar="NAME", help="the tenant whose quota is charged")


def add_name_option(parser: argparse.ArgumentParser) -> None:
    """Adds --name."""
    parser.add_argument(
        "--name", metavar="NAME", help="what lists call the run (default: its program)"
    )


def settings_of(arguments: argparse.Namespace) -> ClientSettings:
    """Returns the settings that the options give; some commands have no server and no device."""
    return ClientSettings(
        getattr(arguments, "server", None),
        arguments.memory,
        getattr(arguments, "device", None),
        arguments.share,
        arguments.limit,
        arguments.tenant,
        getattr(arguments, "lease", None),
        arguments.policy,
        arguments.priority,
        arguments.weight,
        getattr(arguments, "name", None),
    )


def _program(arguments: argparse.Namespace, usage: str) -> list[str]:
    words: list[str] = list(arguments.program)
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise UsageError(f"say which program to run: {usage}")
    return [find_program(words[0]), *words[1:]]


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the program's environment, with the paths to its servers."""
    environment = _sized(arguments)
    loud = arguments.verbose or is_loud(environment)
    explicit = arguments.server is not None
    return on_paths(environment, _named(arguments), arguments.transport, loud, explicit=explicit)


def _sized(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the program's environment, with the sizes of its lease."""
    variables = settings_of(arguments).variables()
    environment = with_advice(client_environment(os.environ, variables, library_path()))
    if getattr(arguments, "torch", False):
        environment = with_torch(environment, library_path())
    return with_arrays(environment) if getattr(arguments, "arrays", False) else environment


def _sized_for_any(arguments: argparse.Namespace) -> dict[str, str]:
    """As `_sized`, where RGPU_SERVER or --server names several servers."""
    variables = settings_of(_without_server(arguments)).variables()
    others = {name: text for name, text in os.environ.items() if name != "RGPU_SERVER"}
    return client_environment(others, variables, library_path())


def _without_server(arguments: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(arguments), "server": None})


def _named(arguments: argparse.Namespace) -> str:
    """Returns the server as the user named it."""
    return arguments.server or os.environ.get("RGPU_SERVER") or str(DEFAULT_SERVER)


# rgpu run


def _configure_run(parser: argparse.ArgumentParser) -> None:
    _add_session_options(parser)
    parser.add_argument(
        "--hold",
        action="store_true",
        help="stay the program's parent, keep its lease alive by calls, revoke it at the end",
    )
    parser.add_argument(
        "--arrays",
        action="store_true",
        help="the program's `import cupy` is rgpu's: its arrays are on the GPU node",
    )
    parser.add_argument(
        "--torch",
        action="store_true",
        help="PyTorch's `cuda` is the GPU node, for programs that say so",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="run in the background: print the run's id and keep its output",
    )
    add_wait_option(parser)
    add_options(parser).add_argument(
        "--reservation", metavar="ID", help="use the cards that `rgpu reserve` reserved: id or name"
    )


def add_wait_option(parser: argparse.ArgumentParser) -> None:
    """Adds --wait."""
    parser.add_argument(
        "--wait",
        nargs="?",
        type=wait_seconds,
        const=FOR_EVER,
        default=0.0,
        metavar="SECONDS",
        help="if there is no room, wait in line: for some seconds (--wait=60), or without a limit",
    )


def _run(arguments: argparse.Namespace) -> int:
    with before_start():
        keep_started()
        several = "," in (arguments.server or "")
        named = _without_server(arguments) if several else arguments
        settings_of(named).variables()  # first, so that wrong options are reported first
        where = wanted(arguments)
        command = _program(arguments, "rgpu run [OPTIONS] -- PROGRAM [ARGUMENTS]")
        if arguments.detach:
            return _detached(arguments, command)
        server = arguments.server or os.environ.get("RGPU_SERVER", "")
        manager = None
        if arguments.reservation:
            from rgpu_client.cluster.reserved import check_options

            check_options(arguments, where)
        elsewhere = server or _all_name_servers(arguments)
        if arguments.manager or arguments.reservation or not elsewhere:
            from rgpu_client.cluster.placing import manager_of

            manager = manager_of(arguments.manager, os.environ)
        if arguments.reservation:
            _run_reserved(arguments, command, manager)
        if manager is not None:
            return _run_in_cluster(arguments, command, manager, where)
        if "," in server:
            _choose(arguments, server, where)
        elif where.given:
            raise UsageError(
                f"{' and '.join(where.named)} {'is' if len(where.named) == 1 else 'are'} for a "
                "cluster: name its manager (--manager or RGPU_MANAGER), or several servers "
                "(--server a:7700,b:7700); `--device 0,1` takes two devices of one server"
            )
        environment = _environment(arguments)
        if arguments.hold:
            return _run_held(arguments, command, environment)
        _become(command, claimed(carried(environment), program_name(command), arguments.wait))
    raise AssertionError("a program that was started does not return")


def _detached(arguments: argparse.Namespace, command: list[str]) -> int:
    """Runs the same command in the background."""
    from rgpu_client.background.starting import detach

    words = sys.argv[2:]
    options = len(words) - len(arguments.program)
    kept = [word for word in words[:options] if word != "--detach"]
    name = run_name({**os.environ, **settings_of(_without_server(arguments)).variables()},
                    program_name(command))  # fmt: skip
    return detach(name, [*kept, *words[options:]])


def _all_name_servers(arguments: argparse.Namespace) -> bool:
    """True if each device of the program names its server, as in 0@a:7700,0@b:7700."""
    if arguments.device:
        devices = parse_devices(arguments.device)
    else:
        devices = variable(os.environ, "RGPU_DEVICE", parse_devices) or ()
    return bool(devices) and all(device.server for device in devices)


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Executes the program in place of this process; ProgramError."""
    sys.stdout.flush()
    say_starting()
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        say_not_started()
        raise cannot_start(command[0], error) from None


def _run_in_cluster(
    arguments: argparse.Namespace, command: list[str], manager: Endpoint, where: Wanted
) -> int:
    """Runs the program on the card that the manager chooses."""
    if arguments.server:
        raise UsageError("--manager chooses the server: leave out --server or --manager")
    if arguments.hold:
        raise UsageError("--hold keeps a lease of one server alive: name it with --server")
    from rgpu_client.cluster.placing import place_by_manager

    environment = _sized(arguments)
    loud = arguments.verbose or is_loud(environment)
    lease = environment.pop("RGPU_LEASE", "")
    if lease:
        from rgpu_client.cluster.reserved import in_lease

        joined = in_lease(manager, lease, environment, loud=loud)
        if joined is not None:
            chosen = _paths_of_cluster(arguments, manager, joined[1], joined[0], loud)
            _become(command, claimed(carried(chosen), program_name(command)))
        # The next run that names the lease finds it by this name.
        environment["RGPU_NAME"] = lease
    for left in reversed(range(_TRIES)):
        name = run_name(environment, program_name(command))
        placed = place_by_manager(manager, where, environment, arguments.wait, name=name, loud=loud)
        try:
            chosen = _paths_of_cluster(arguments, manager, placed.environment, placed.server, loud)
            _become(command, claimed(carried(chosen), program_name(command)))
        except UnsecuredError:
            placed.give_up()
            raise
        except (NoSessionError, ServerError):
            # The server may have ended since it granted the lease; another one may have room.
            placed.give_up()
            if not left:
                raise
        except RgpuError:
            placed.give_up()
            raise
    raise AssertionError("a program that was started does not return")


def _run_reserved(
    arguments: argparse.Namespace, command: list[str], manager: Endpoint | None
) -> NoReturn:
    """Runs the program in a reservation; it shares it with others that run there."""
    if manager is None:
        raise UsageError(
            "a reservation is of a cluster: name its manager, --manager or RGPU_MANAGER"
        )
    from rgpu_client.cluster.reserved import in_reservation

    environment = _sized(arguments)
    loud = arguments.verbose or is_loud(environment)
    server, variables = in_reservation(manager, arguments.reservation, environment, loud=loud)
    chosen = _paths_of_cluster(arguments, manager, variables, server, loud)
    _become(command, claimed(carried(chosen), program_name(command)))


def _paths_of_cluster(
    arguments: argparse.Namespace,
    manager: Endpoint,
    variables: dict[str, str],
    server: str,
    loud: bool,
) -> dict[str, str]:
    """Returns the program's environment, with the paths to the servers that a manager has named."""
    environment = on_paths(variables, server, arguments.transport, loud)
    if speaks_tls(manager):
        check_secured_paths(environment, server, arguments.transport)
    return environment


def _choose(arguments: argparse.Namespace, servers: str, where: Wanted) -> None:
    """Chooses one of several servers, as if the user had named it and its device."""
    from rgpu_client.cluster.choosing import choose_server, servers_of

    if arguments.device is not None or os.environ.get("RGPU_DEVICE"):
        raise UsageError("a device is of one server: leave out --device, or name one server")
    environment = _sized_for_any(arguments)
    loud = arguments.verbose or is_loud(environment)
    server, arguments.device = choose_server(
        servers_of(servers), where, environment, wait=arguments.wait > 0, loud=loud
    )
    arguments.server = server or None


def _run_held(
    arguments: argparse.Namespace, command: list[str], environment: dict[str, str]
) -> int:
    if arguments.wait:
        raise UsageError("--hold grants its lease at once or not at all: leave out --wait")
    from rgpu_client.control import ControlClient
    from rgpu_client.session.agent import run_under_lease

    with ControlClient(api_server(environment, _named(arguments))) as client:
        request = _lease_request(environment, run_name(environment, program_name(command)))
        return run_under_lease(client, request, command, carried(environment))


def _lease_request(environment: dict[str, str], name: str) -> LeaseRequest:
    from rgpu_client.control import LeaseRequest

    sizes = sizes_of(environment)
    return LeaseRequest(
        tenant=sizes.tenant,
        key=sizes.key or background_run(),
        device=sizes.device,
        memory_bytes=sizes.memory.bytes,
        memory_ppm=sizes.memory.ppm,
        share_request_ppm=sizes.share_ppm,
        share_limit_ppm=sizes.limit_ppm,
        policy=sizes.policy,
        priority=sizes.priority,
        weight=sizes.weight,
        behind_line=True,
        name=name,
    )


# rgpu trace


def _configure_trace(parser: argparse.ArgumentParser) -> None:
    _add_session_options(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the counters as JSON, in the last line"
    )


def _trace(arguments: argparse.Namespace) -> int:
    with before_start():
        settings_of(arguments).variables()
        command = _program(arguments, "rgpu trace [OPTIONS] -- PROGRAM [ARGUMENTS]")
        environment = claimed(carried(_environment(arguments)), program_name(command))
    import json
    import shutil
    import tempfile
    from dataclasses import asdict

    from rgpu_client.trace import format_trace
    from rgpu_client.trace_page import read_traces
    from rgpu_common.tables import terminal_width

    with tempfile.TemporaryDirectory(prefix="rgpu-trace-") as folder:
        status = _call(command, {**environment, "RGPU_TRACE": folder})
        trace = read_traces(Path(folder))
    if not trace.calls and not trace.missing:
        print(f"rgpu: the program made no CUDA call (exit code {status})", file=sys.stderr)
        return status or FAILED
    if arguments.json:
        # In one line, after all that the program has printed.
        print(json.dumps(asdict(trace)))
        return status
    columns = shutil.get_terminal_size((100, 24)).columns
    print(format_trace(trace, columns, arguments.verbose, terminal_width()))
    return status


def _call(command: Sequence[str], environment: dict[str, str]) -> int:
    from rgpu_client.session.agent import started

    # With forwarded signals the counters are shown also after Ctrl-C has ended the program.
    with started(command, environment) as process:
        status = process.wait()
    return 128 - status if status < 0 else status


run = Command("run", "run a program on a server's device", _configure_run, _run)
trace = Command("trace", "run a program and count its CUDA calls", _configure_trace, _trace)
