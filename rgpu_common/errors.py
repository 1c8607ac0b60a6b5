"""The whole error tree.  Every message is a sentence that a user can act on."""

from __future__ import annotations

# The exit codes of a command that starts a program and could not are those of env and timeout;
# docs/reference/client.md has the table.
NOT_STARTED = 125


class RgpuError(Exception):
    """Anything that rgpu refuses or fails to do; its text goes to the user as it is.

    exit_code: with which a command ends.
    """

    exit_code = 1


class UsageError(RgpuError):
    """The command line or an argument makes no sense."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file or a value in it is not accepted."""


class UnitError(UsageError):
    """A quantity is not written in a form that is accepted."""


class EndpointError(UsageError):
    """An address is not written in a form that is accepted."""


class MissingPartError(RgpuError):
    """A compiled part or an optional package is not installed."""


class ServerError(RgpuError):
    """The server cannot be reached or refused a request."""


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
    """A peer sent something that the protocol does not allow."""


class DeviceError(RgpuError):
    """A device cannot be served."""


class WorkerError(RgpuError):
    """A worker process could not be started or spoken to."""
