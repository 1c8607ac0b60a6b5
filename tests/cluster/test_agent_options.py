"""The options of `rgpu agent-node`, and the page that lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgpu_cluster.kubernetes.agent.config import load_agent_config
from rgpu_cluster.kubernetes.agent.page import replaced
from rgpu_cluster.kubernetes.slices import Reach
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint
from rgpu_common.errors import RgpuError

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/agent-node.md"
NODE = {"node_name": "gpu7"}
LOCAL = {**NODE, "listen": "127.0.0.1", "key_file": "/key"}
TLS = {"tls_cert": "/a.pem", "tls_key": "/a.key"}


def test_the_page_is_what_the_rows_say() -> None:
    page = PAGE.read_text()
    assert replaced(page) == page, "run `make gen`"
    with pytest.raises(ValueError, match="no section"):
        replaced("# A\n")


def test_the_defaults_need_a_name_alone() -> None:
    config = load_agent_config(NODE)
    assert str(config.daemon) == "unix:/run/rgpu/rgpu.sock"
    assert (config.offer, config.evict_seconds) == (Reach.ALL, 300.0)
    assert config.listener is None
    assert config.advertised is None


def test_an_address_has_a_port_and_tls_with_a_certificate() -> None:
    assert load_agent_config(LOCAL).listener == TcpEndpoint("127.0.0.1", 7720)
    config = load_agent_config({**LOCAL, **TLS, "listen": "0.0.0.0:1", "advertise": "gpu7:2"})
    assert config.listener == TlsEndpoint("0.0.0.0", 1)
    assert config.advertised == TlsEndpoint("gpu7", 2)
    # A proxy before the agent may speak TLS for it.
    proxied = load_agent_config({**LOCAL, "advertise": "tls:gpu7:2"})
    assert (type(proxied.listener), type(proxied.advertised)) == (TcpEndpoint, TlsEndpoint)


def test_times_have_units() -> None:
    config = load_agent_config({**NODE, "evict_seconds": "10min", "lifetime_seconds": "2d"})
    assert (config.evict_seconds, config.lifetime_seconds) == (600.0, 172_800.0)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "--node-name"),
        ({"node_name": "GPU_7"}, "spec.nodeName"),
        ({**NODE, "server": "ucx:gpu7:1"}, "name the server's socket"),
        ({**NODE, "server": "nothing at all"}, "is not an address"),
        ({**NODE, "offer": "rack"}, "none of all, zone, node"),
        ({**NODE, "evict_seconds": "0.5s"}, "write 90s"),
        ({**NODE, "evict_seconds": "2d"}, "1 to 86400 seconds"),
        ({**NODE, "listen": "127.0.0.1:1"}, "belong together"),
        ({**NODE, "key_file": "/key"}, "belong together"),
        ({**LOCAL, "tls_cert": "/a.pem"}, "belong together"),
        ({**LOCAL, "listen": "0.0.0.0:1"}, "unencrypted"),
        ({**LOCAL, "listen": "tls:127.0.0.1:1"}, "needs a certificate"),
        ({**LOCAL, "listen": "unix:/x"}, "is not HOST:PORT"),
        ({**LOCAL, "advertise": "grpc:gpu7:1"}, "is not HOST:PORT"),
        ({**NODE, "plugin_account": "plugin"}, "is not NAMESPACE/NAME"),
    ],
)
def test_what_is_wrong_is_said(said: dict[str, str], sentence: str) -> None:
    with pytest.raises(RgpuError, match=sentence):
        load_agent_config(said)
