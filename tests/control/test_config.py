"""The server's configuration: what is accepted, and which sentence the rest gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgpu_common.endpoints import TcpEndpoint, UnixEndpoint
from rgpu_common.errors import ConfigError, UsageError
from rgpu_server.config import (
    DeviceSpec,
    Emulated,
    Overrides,
    ServerConfig,
    default_memory_bytes,
    load_config,
)
from rgpu_server.core.model import TenantPolicy

GIB = 1 << 30
FULL = """
listen = ["127.0.0.1:0", "unix:/run/rgpu.sock"]
devices = ["emulated:8GiB", "cuda:1"]
metrics = "127.0.0.1:9400"

[leases]
memory = "2GiB"
share = 0.1
limit = "70%"
ttl_seconds = 60
grace_seconds = 1.5
settle_seconds = 0.5
remember_seconds = 10

[sessions]
max = 100
open_seconds = 5
end_seconds = 1
handshake_seconds = 3
handshakes = 8
api_connections = 9
stream_credits = 64
stream_credit_bytes = "1MiB"

[workers]
warm = 4
sandbox = false
log = "1KiB"

[emulated]
timing = "hostile:7"
cache = "/var/cache/rgpu"
launch_seconds = 90

[tenants.alice]
sessions = 3
memory = "4GiB"

[tenants."*"]
memory = 1000
"""


def load(tmp_path: Path, text: str, overrides: Overrides | None = None) -> ServerConfig:
    path = tmp_path / "rgpu.toml"
    path.write_text(text)
    return load_config(path, overrides or Overrides())


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, FULL)
    assert config.listen == (TcpEndpoint("127.0.0.1", 0), UnixEndpoint("/run/rgpu.sock"))
    assert config.devices == (DeviceSpec("emulated", 8 * GIB), DeviceSpec("cuda", ordinal=1))
    assert config.metrics == TcpEndpoint("127.0.0.1", 9400)
    policy, limits = config.policy, config.limits
    assert (policy.default_share_request_ppm, policy.default_share_limit_ppm) == (100_000, 700_000)
    assert (policy.ttl_seconds, policy.grace_seconds, policy.memory_seconds) == (60, 1.5, 10)
    assert policy.settle_seconds == 0.5
    assert (policy.max_sessions, policy.open_seconds, policy.end_seconds) == (100, 5, 1)
    assert (policy.warm_workers, config.sandbox, config.log_bytes) == (4, False, 1024)
    assert (limits.handshake_seconds, limits.handshakes, limits.control_connections) == (3, 8, 9)
    assert (limits.stream_credits, limits.stream_credit_bytes) == (64, 1 << 20)
    assert config.emulated == Emulated("hostile:7", "/var/cache/rgpu", 90)
    assert config.tenants == {
        "alice": TenantPolicy(3, 4 * GIB),
        "*": TenantPolicy(None, 1000),
    }


def test_without_a_file_everything_has_a_default() -> None:
    config = load_config(None, Overrides())
    assert config.listen == (TcpEndpoint("127.0.0.1", 7700),)
    assert config.devices == (DeviceSpec("emulated", 8 * GIB),)
    assert config.metrics is None
    assert default_memory_bytes(config, 8 * GIB) == 2 * GIB


def test_the_command_line_wins(tmp_path: Path) -> None:
    overrides = Overrides(
        listen=("0.0.0.0:1",), devices=("emulated:1GiB",), insecure=True, metrics=""
    )
    config = load(tmp_path, FULL, overrides)
    assert config.listen == (TcpEndpoint("0.0.0.0", 1),)
    assert config.devices == (DeviceSpec("emulated", GIB),)
    assert config.metrics is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lisen = ['x']", "unknown key 'lisen'; did you mean 'listen'?"),
        ("[leases]\nzzz = 1", "unknown key 'leases.zzz'; known are"),
        ("[tenants.bob]\nmemry = 1", "unknown key 'tenants.bob.memry'; did you mean 'memory'?"),
        ("listen = 7700", "listen is 7700, which is not a list of strings"),
        ("listen = []", "the server needs at least one address"),
        ("listen = ['localhost:99999']", "has the port 99999: ports go from 0 to 65535"),
        ("listen = ['unix:relative']", "a Unix socket is written unix:/PATH"),
        (
            "devices = ['gpu']",
            "'gpu' is not a device: write emulated, emulated:8GiB, cuda or cuda:0",
        ),
        ("devices = ['emulated:1']", "an emulated device needs at least 1MiB"),
        ("devices = []", "a server has 1 to 16 devices, asked for are 0"),
        ("insecure = 'yes'", "insecure is 'yes', which is not true or false"),
        ("leases = 1", "leases is 1, which is not a table [leases]"),
        ("[leases]\nshare = 1.5", "leases.share: '1.5' is not a share"),
        ("[leases]\nshare = 0.5\nlimit = 0.4", "leases.limit: must be above 0 and not below"),
        ("[leases]\nlimit = 0", "leases.limit: must be above 0"),
        (
            "[leases]\nttl_seconds = -1",
            "leases.ttl_seconds is -1, which is not a number of seconds",
        ),
        ("[sessions]\nmax = 0", "sessions.max is 0, which is not a whole number from 1 to 100000"),
        ("[sessions]\nmax = true", "sessions.max is True, which is not a whole number"),
        (
            "[sessions]\nstream_credit_bytes = '1 foo'",
            "sessions.stream_credit_bytes: '1 foo' has the",
        ),
        ("[sessions]\nstream_credit_bytes = 9", "sessions.stream_credit_bytes: must be at least"),
        ("[leases]\nmemory = 'x'", "leases.memory: 'x' is not a number of bytes"),
        ("[leases]\nmemory = '120%'", "leases.memory: '120%' is not a number of bytes"),
        ("[leases]\nmemory = 0", "leases.memory: '0' is nothing: a lease needs some memory"),
        ("[leases]\nmemory = true", "leases.memory is True, which is not bytes"),
        ("[emulated]\ntiming = 'fast'", "emulated.timing: 'fast' is not normal, hostile or"),
        ("[emulated]\ntiming = 'hostile:x'", "emulated.timing: 'hostile:x' is not normal"),
        ("[emulated]\nlaunch_seconds = 0", "emulated.launch_seconds is 0, which is not a whole"),
        ("devices = ['emulated:3Gi']", "rgpu.toml: devices: 'emulated:3Gi' is not a device: '3Gi'"),
        ("listen = ['a:b']", "rgpu.toml: listen: 'a:b' is not an address"),
        ("metrics = '127.0.0.1'", "metrics: '127.0.0.1' is not HOST:PORT"),
        ("[workers]\nlog = -5", "workers.log is -5, which is not bytes"),
        ("metrics = 'unix:/x'", "metrics: 'unix:/x' is not HOST:PORT"),
        ("metrics = '0.0.0.0:1'", "0.0.0.0:1 can be reached from other machines"),
        ("listen = ['gpu-node:7700']", "gpu-node:7700 can be reached from other machines"),
        ("listen = [", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: there is no such file"):
        load_config(tmp_path / "nothing.toml", Overrides())


def test_a_default_memory_in_bytes_or_as_a_part(tmp_path: Path) -> None:
    assert default_memory_bytes(load(tmp_path, "[leases]\nmemory = 4096"), GIB) == 4096
    assert default_memory_bytes(load(tmp_path, "[leases]\nmemory = '50%'"), GIB) == GIB // 2


def test_a_default_memory_that_comes_to_nothing(tmp_path: Path) -> None:
    config = load(tmp_path, "[leases]\nmemory = '0.0001%'")
    with pytest.raises(ConfigError, match=r"leases\.memory"):
        default_memory_bytes(config, 1 << 10)


@pytest.mark.parametrize(("content", "reason"), [(b"\xff", "it is not UTF-8 text"), (None, "Is a")])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "rgpu.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"cannot be read: {reason}"):
        load_config(path, Overrides())
