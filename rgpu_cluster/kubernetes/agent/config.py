"""The options of `rgpu agent-node`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.slices import Reach, is_kubernetes_name
from rgpu_common.config import Table
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint, UcxEndpoint, parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.key_kinds import Choice, File, Flag, Seconds, Text
from rgpu_common.keys import Option, fill, key
from rgpu_common.units import format_duration, parse_duration
from rgpu_server.identity.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.endpoints import Endpoint

AGENT_PORT = 7720
_ACCOUNT = re.compile(
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
)


class Reaches(Choice[Reach]):
    """Whose pods may use the devices."""

    def __init__(self) -> None:
        super().__init__({reach.value: reach for reach in Reach})

    @property
    def word(self) -> str:
        return ", ".join(f"`{reach.value}`" for reach in Reach)

    def said(self, option: Option, value: Any) -> Reach:
        if value not in self.meanings:
            raise UsageError(f"{option.flag}: {value!r} is none of {', '.join(self.meanings)}")
        return self.meanings[value]


class Duration(Seconds):
    """A time, which an option may say in any unit."""

    def said(self, option: Option, value: Any) -> float:
        seconds = float(parse_duration(value))
        if not self.low <= seconds <= self.high:
            raise UsageError(f"{option.flag}: {value} is not {self.accepted}")
        return seconds

    def written(self, value: float) -> str:
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything the agent needs to start."""

    node_name: str = key(
        "node_name", Text(), "",
        "The name of this node, which is also that of its pool. It has to be named.",
        option=Option("--node-name", "NAME"), unset="none",
    )  # fmt: skip
    server: str = key(
        "server", Text(), "unix:/run/rgpu/rgpu.sock",
        "The socket of this node's `rgpu serve`.",
        option=Option("--server", "ADDRESS"),
    )  # fmt: skip
    kubeconfig: str = key(
        "kubeconfig", File(), "",
        "How to reach the API server.",
        option=Option("--kubeconfig", "FILE"),
        unset="`KUBECONFIG`, else the ServiceAccount of the pod",
    )  # fmt: skip
    offer: Reach = key(
        "offer", Reaches(), Reach.ALL,
        "Whose pods may use the cards: those of all nodes, of the node's zone, or of the node "
        "itself.",
        option=Option("--offer", "REACH"),
    )  # fmt: skip
    evict_seconds: float = key(
        "evict_seconds", Duration(1, 86400), 300.0,
        "Pods are evicted from a card that has been away for so long.",
        option=Option("--evict-after", "TIME"),
    )  # fmt: skip
    key_file: str = key(
        "key_file", File(), "",
        "The file with this node's key for credentials, as `identity.claim_key` of the server.",
        option=Option("--key-file", "FILE"), unset="none: the agent gives no credentials",
    )  # fmt: skip
    pod_keys: str = key(
        "pod_keys", File(), "",
        "The file in which the agent keeps the API server's keys, as `identity.pod_keys` of the "
        "server names it. With it pods need no plugin: they show their own tokens.",
        option=Option("--pod-keys", "FILE"), unset="none",
    )  # fmt: skip
    listen: str = key(
        "listen", Text(), "",
        f"Where client nodes ask for credentials. The default port is {AGENT_PORT}.",
        option=Option("--listen", "HOST:PORT"), unset="none: the agent gives no credentials",
    )  # fmt: skip
    advertise: str = key(
        "advertise", Text(), "",
        "The address at which client nodes reach `--listen`.",
        option=Option("--advertise", "HOST:PORT"),
        unset="that of `--listen`; where it is 0.0.0.0 or [::], the server's host",
    )  # fmt: skip
    tls_cert: str = key(
        "tls_cert", File(), "",
        "The certificate of `--listen`, in PEM. The file is read again when it changes.",
        option=Option("--tls-cert", "FILE"), unset="none",
    )  # fmt: skip
    tls_key: str = key(
        "tls_key", File(), "",
        "The key of the certificate.",
        option=Option("--tls-key", "FILE"), unset="none",
    )  # fmt: skip
    insecure: bool = key(
        "insecure", Flag(), False,
        "Give credentials unencrypted to other machines.",
        option=Option("--insecure"),
    )  # fmt: skip
    plugin_account: str = key(
        "plugin_account", Text(), "rgpu-system/rgpu-node-plugin",
        "The ServiceAccount of the plugins on client nodes.",
        option=Option("--plugin-account", "NAMESPACE/NAME"),
    )  # fmt: skip
    lifetime_seconds: float = key(
        "lifetime_seconds", Duration(60, 366 * 86400), 7 * 86400.0,
        "How long a credential opens sessions of its claim.",
        option=Option("--credentials-last", "TIME"),
    )  # fmt: skip

    @property
    def daemon(self) -> Endpoint:
        return parse_endpoint(self.server)

    @property
    def tls(self) -> Tls:
        """The certificate of `listener`."""
        return Tls(certificate=self.tls_cert, key=self.tls_key)

    @property
    def listener(self) -> TcpEndpoint | None:
        """Where the agent listens, as TlsEndpoint with a certificate."""
        return self._address(self.listen, "--listen") if self.listen else None

    @property
    def advertised(self) -> TcpEndpoint | None:
        """The address that client nodes are told, as far as the command line says it."""
        if self.advertise:
            return self._address(self.advertise, "--advertise")
        return self.listener

    def _address(self, text: str, flag: str) -> TcpEndpoint:
        endpoint = parse_endpoint(text)
        if type(endpoint) not in (TcpEndpoint, TlsEndpoint) or not isinstance(
            endpoint, TcpEndpoint
        ):
            raise UsageError(f"{flag}: {text!r} is not HOST:PORT")
        named = text.endswith(f":{endpoint.port}")
        kind = TlsEndpoint if self.tls_cert else type(endpoint)
        return kind(endpoint.host, endpoint.port if named else AGENT_PORT)


def load_agent_config(said: Mapping[str, Any]) -> AgentConfig:
    """Returns what the command line says. UsageError names the option and the remedy."""
    config = fill(AgentConfig, Table({}, "defaults"), said)
    if not is_kubernetes_name(config.node_name):
        raise UsageError(
            f"--node-name {config.node_name!r} names no node: write the name of the Node object, "
            "at most 63 small letters, digits, dots and dashes (in a pod: spec.nodeName)"
        )
    if isinstance(config.daemon, UcxEndpoint):
        raise UsageError(f"--server: {config.server} carries sessions; name the server's socket")
    if not _ACCOUNT.fullmatch(config.plugin_account):
        raise UsageError(
            f"--plugin-account: {config.plugin_account!r} is not NAMESPACE/NAME of a ServiceAccount"
        )
    if bool(config.tls_cert) != bool(config.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together: name both files, or neither")
    if bool(config.listen) != bool(config.key_file):
        raise UsageError(
            "--listen and --key-file belong together: name both to give credentials to client "
            "nodes, or neither"
        )
    listener, _ = config.listener, config.advertised
    if isinstance(listener, TlsEndpoint) and not config.tls_cert:
        raise UsageError(
            f"--listen {config.listen} needs a certificate: name --tls-cert and --tls-key"
        )
    if listener is not None and not (config.tls_cert or listener.loopback or config.insecure):
        raise UsageError(
            f"--listen {config.listen} can be reached from other machines and would give "
            "credentials unencrypted: name a certificate with --tls-cert and --tls-key, or say "
            "--insecure if the network is trusted"
        )
    return config
