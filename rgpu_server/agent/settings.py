"""The `[cluster]` table of the configuration file."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rgpu_common.clusters import check_node_name, is_node_name, manager_endpoint
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.key_kinds import File, Text
from rgpu_common.keys import Option, key

if TYPE_CHECKING:
    from rgpu_common.config import Table


class _Checked(Text):
    """A text that is checked, also if the command line says it; "" stands for an absent key."""

    def check(self, text: str) -> str:
        raise NotImplementedError

    def read(self, table: Table, name: str, default: str) -> str:
        text = super().read(table, name, default)
        try:
            return self.check(text) if text else text
        except UsageError as error:
            raise table.refuse(name, str(error)) from None

    def said(self, option: Option, value: Any) -> str:
        try:
            return self.check(str(value))
        except UsageError as error:
            raise UsageError(f"{option.flag}: {error}") from None


class Name(_Checked):
    """The name of a node, a rack or a zone."""

    accepted = "name of up to 63 letters, digits, dots, dashes and underscores"

    def check(self, text: str) -> str:
        return check_node_name(text)


class ManagerAddress(_Checked):
    """The address of a manager."""

    accepted = "`HOST:PORT` or `tls:HOST:PORT`"

    def check(self, text: str) -> str:
        manager_endpoint(text)
        return text


class ProgramAddress(_Checked):
    """An address for programs."""

    accepted = "address, as `--server` has it"

    def check(self, text: str) -> str:
        return str(parse_endpoint(text))


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the server is a node of a cluster. join: "" if it is in none."""

    join: str = key(
        "cluster.join", ManagerAddress(), "",
        "The manager of the cluster that the server joins "
        "([small cluster](../how-to/small-cluster.md)).",
        option=Option("--join", "HOST:PORT"), unset="none",
    )  # fmt: skip
    token_file: str = key(
        "cluster.token", File(), "",
        "The file that holds the access token for the manager.",
        option=Option("--join-token", "FILE"), unset="none",
    )  # fmt: skip
    name: str = key(
        "cluster.name", Name(), "", "The node's name in the cluster.",
        option=Option("--node-name", "NAME"), unset="the host name",
    )  # fmt: skip
    rack: str = key(
        "cluster.rack", Name(), "",
        "The rack of the node. Programs in one rack are near to each other.",
        option=Option("--rack", "NAME"), unset="none",
    )  # fmt: skip
    zone: str = key(
        "cluster.zone", Name(), "", "The zone of the node.",
        option=Option("--zone", "NAME"), unset="none",
    )  # fmt: skip
    advertise: str = key(
        "cluster.advertise", ProgramAddress(), "",
        "The address at which programs of the cluster reach this server.",
        option=Option("--advertise", "ADDRESS"),
        unset="the first address of `listen` for other machines",
    )  # fmt: skip

    @property
    def node_name(self) -> str:
        """The name, or the host name; UsageError if that cannot name a node."""
        name = self.name or socket.gethostname().partition(".")[0]
        if not is_node_name(name):
            raise UsageError(f"the host name {name!r} cannot name a node: set --node-name")
        return name
