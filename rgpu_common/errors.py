"""All error classes. Every message is a sentence that names the remedy."""

from __future__ import annotations

# The exit codes of a command that starts a program and could not are those of env and timeout;
# docs/reference/client.md has the table.
NOT_STARTED = 125


class RgpuError(Exception):
    """rgpu refuses or fails to do something. The message is shown to the user unchanged.

    exit_code: the exit code of a command that ends with this error.
    """

    exit_code = 1


class UsageError(RgpuError):
    """The command line or an argument is not valid."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file, or a value in it, is not valid."""


class UnitError(UsageError):
    """A quantity is not written in an accepted form."""


class EndpointError(UsageError):
    """An address is not written in an accepted form."""


class MissingPartError(RgpuError):
    """A compiled part or an optional package is not installed."""


class ServerError(RgpuError):
    """The server cannot be reached, or has refused a request."""


class NotThereError(ServerError):
    """The server answers, and has nothing of the name."""


class SilentError(ServerError):
    """What listens at the server's address has not answered in time."""


class UnsecuredError(ServerError):
    """An access token would go where others can read it."""


class NoSessionError(ServerError):
    """The server was asked before the program started, and there is no session to be had."""

    exit_code = NOT_STARTED


class ProgramError(RgpuError):
    """The program that was to be started is there and cannot be executed."""

    exit_code = 126


class NoProgramError(ProgramError):
    """The program that was to be started is not there."""

    exit_code = 127


class ProtocolError(RgpuError):
    """A peer has sent bytes that the protocol does not allow."""


class DeviceError(RgpuError):
    """The server cannot offer a device."""


class WorkerError(RgpuError):
    """A worker process could not be started, or does not answer."""
