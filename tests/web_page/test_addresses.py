"""Where the page listens, and what is asked for there."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from helpers import pki
from helpers.server import Server

from rgpu_common.errors import UsageError
from rgpu_server.config_reader import load_config
from web_page.asking import CROWD, crowd, descriptors
from web_page.browser import address


def wrong(*said: str, text: str = "", folder: Path) -> str:
    config = folder / "rgpu.toml"
    config.write_text(text)
    with pytest.raises(UsageError) as error:
        load_config(config, {"web.listen": said[0]} if said else {})
    return str(error.value)


def test_nothing_listens_beyond_this_machine_without_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("rgpu_server.identity.settings.default_tokens_file", lambda: tmp_path / "t")
    for where in ("0.0.0.0:7780", "[::]:7780", "192.0.2.1:7780"):
        said = wrong(where, folder=tmp_path)
        assert "can be reached from other machines and nothing says who their users are" in said
        assert "rgpu token new" in said
    insecure = load_config(None, {"web.listen": "0.0.0.0:7780", "insecure": True})
    assert insecure.web.listen is not None
    (tmp_path / "t").write_text("")
    known = load_config(None, {"web.listen": "0.0.0.0:7780"})
    assert known.identity.tokens == str(tmp_path / "t")


def test_wrong_addresses_are_refused_with_a_sentence(tmp_path: Path) -> None:
    for where in ("127.0.0.1", "ucx:127.0.0.1:1", "grpc:127.0.0.1:1", "nonsense"):
        assert "HOST:PORT" in wrong(where, folder=tmp_path)
    said = wrong("tls:127.0.0.1:7780", folder=tmp_path)
    assert "needs a certificate" in said
    said = wrong("127.0.0.1:7700", text='listen = ["127.0.0.1:7700"]', folder=tmp_path)
    assert "a port of its own" in said


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="did not start") as error, Server("--web", where):
            pass
    assert f"cannot listen on {where}" in str(error.value)


def test_over_tls(tmp_path: Path) -> None:
    folder = pki.folder()
    config = tmp_path / "rgpu.toml"
    config.write_text(
        f'web = "tls:127.0.0.1:0"\n[tls]\ncertificate = "{folder}/server.pem"\n'
        f'key = "{folder}/server.key"\n'
    )
    with Server("--config", str(config)) as secured:
        where = address(secured.log)
        assert where.startswith("https://")
        host = where.split("//")[1].rstrip("/")
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

        def hello() -> str:
            with closing(http.client.HTTPSConnection(host, context=context, timeout=30)) as line:
                line.request("GET", "/api/hello")
                return line.getresponse().read().decode()

        assert json.loads(hello())["kind"] == "server"
        # Connections that have not agreed on TLS take places as well.
        name, _, port = host.partition(":")
        with crowd(name, int(port)):
            assert json.loads(hello())["kind"] == "server"
            assert len(descriptors(secured)) < CROWD
