"""The server's configuration: which values are accepted, and which sentence refuses the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rgpu_common.endpoints import TcpEndpoint, UnixEndpoint
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.sharing import SharePolicy
from rgpu_server.config import (
    CompilerLimits,
    Emulated,
    Enforcement,
    ServerConfig,
    default_memory_bytes,
    pool_of,
)
from rgpu_server.config_kinds import DeviceSpec
from rgpu_server.config_reader import load_config
from rgpu_server.core.identity import Require
from rgpu_server.core.model import Amount, Device
from rgpu_server.core.policy import TenantPolicy
from rgpu_server.devices import Inventory, strange_models
from rgpu_server.identity import settings
from rgpu_server.identity.settings import Identity

GIB = 1 << 30
FULL = """
listen = ["127.0.0.1:0", "unix:/run/rgpu.sock"]
devices = ["emulated:8GiB", "cuda:1"]
metrics = "127.0.0.1:9400"

[leases]
memory = "2GiB"
share = 0.7
limit = "70%"
ttl_seconds = 60
grace_seconds = 1.5
settle_seconds = 0.5
remember_seconds = 10
policy = "fixed"
max = 12
max_empty = 4

[quota]
enforce = false
max_kernel_seconds = 2.5
absent_tenant = "none"
absent_model = "unlimited"
max_tenants = 7
reclaim_memory = false
reclaim_seconds = 5
claim_seconds = 6

[pools]
teamA = [1]

[sessions]
max = 100
per_tenant = 70
open_seconds = 5
end_seconds = 1
handshake_seconds = 3
handshakes = 8
api_connections = 9
stream_credits = 64
stream_credit_bytes = "1MiB"
compression = false

[workers]
warm = 4
sandbox = false
log = "1KiB"

[emulated]
timing = "hostile:7"
cache = "/var/cache/rgpu"
cache_size = "2GiB"
launch_seconds = 90
compiler_processes = 3
compiler_memory = "6GiB"
compiler_seconds = 120
compiler_burst_seconds = 900

[server]
state = "/var/lib/rgpu"

[identity]
require = "always"
tokens = "/etc/rgpu/tokens.toml"
operators = ["ops"]
certificate = "uri"
uri_prefix = "spiffe://gpu/"
users = {root = "ops", 4711 = "alice"}

[tenants.alice]
sessions = 3
leases = 5
memory = "4GiB"
share = 2.5
max_priority = 9
max_weight = 8
pools = ["public", "teamA"]
quota = {"rgpu emulated device" = {share = "250%", memory = "32vmem"}, "H200" = {share = "50vcore"}}
borrow = true
borrow_share = 0.5
borrow_memory = "1GiB"
lend = false

[tenants."*"]
memory = "1000B"
"""


def load(tmp_path: Path, text: str, said: Mapping[str, Any] | None = None) -> ServerConfig:
    path = tmp_path / "rgpu.toml"
    path.write_text(text)
    return load_config(path, said or {})


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, FULL)
    assert config.listen == (TcpEndpoint("127.0.0.1", 0), UnixEndpoint("/run/rgpu.sock"))
    assert config.devices == (DeviceSpec("emulated", 8 * GIB), DeviceSpec("cuda", ordinal=1))
    assert config.metrics == TcpEndpoint("127.0.0.1", 9400)
    policy, limits = config.policy, config.limits
    assert (policy.default_share_request_ppm, policy.default_share_limit_ppm) == (700_000, 700_000)
    assert (policy.ttl_seconds, policy.grace_seconds, policy.memory_seconds) == (60, 1.5, 10)
    assert policy.settle_seconds == 0.5
    assert (policy.max_sessions, policy.open_seconds, policy.end_seconds) == (100, 5, 1)
    assert policy.tenant_sessions == 70
    assert (policy.warm_workers, config.sandbox, config.log_bytes) == (4, False, 1024)
    assert (limits.handshake_seconds, limits.handshakes, limits.control_connections) == (3, 8, 9)
    assert (limits.stream_credits, limits.stream_credit_bytes) == (64, 1 << 20)
    assert not limits.compression
    assert policy.default_policy is SharePolicy.FIXED
    assert (policy.max_leases, policy.max_idle_leases, policy.max_tenants) == (12, 4, 7)
    assert (policy.absent_tenant_unlimited, policy.absent_model_unlimited) == (False, True)
    assert (policy.reclaim_memory, policy.reclaim_seconds, policy.claim_seconds) == (False, 5, 6)
    assert [pool_of(config, ordinal) for ordinal in (0, 1)] == ["public", "teamA"]
    compiler = CompilerLimits(3, 6 * GIB, 120.0, 900.0, 2 * GIB)
    assert config.emulated == Emulated("hostile:7", "/var/cache/rgpu", 90, compiler)
    assert (config.state, config.enforcement) == ("/var/lib/rgpu", Enforcement(False, 2.5))
    assert config.identity == Identity(
        require=Require.ALWAYS,
        tokens="/etc/rgpu/tokens.toml",
        operators=("ops",),
        users={0: "ops", 4711: "alice"},
        certificate="uri",
        uri_prefix="spiffe://gpu/",
    )
    assert config.tenants == {
        "alice": TenantPolicy(
            sessions=3,
            memory_bytes=4 * GIB,
            share_ppm=2_500_000,
            max_priority=9,
            max_weight=8,
            pools=("public", "teamA"),
            quota={
                "rgpu emulated device": Amount(2_500_000, 8 * GIB),
                "H200": Amount(500_000, 0),
            },
            borrow=True,
            borrow_share_ppm=500_000,
            borrow_memory_bytes=GIB,
            lend=False,
            leases=5,
        ),
        "*": TenantPolicy(None, 1000),
    }


def test_without_a_file_everything_has_a_default() -> None:
    config = load_config(None, {})
    assert config.listen == (TcpEndpoint("127.0.0.1", 7700),)
    assert config.devices == (DeviceSpec("emulated", 8 * GIB),)
    assert config.metrics is None
    assert (config.state, config.enforcement) == ("", Enforcement(True, 60.0))
    assert config.limits.compression
    assert default_memory_bytes(config, 8 * GIB) == 2 * GIB


def test_the_command_line_wins(tmp_path: Path) -> None:
    said = {
        "listen": ["0.0.0.0:1"],
        "devices": ["emulated:1GiB"],
        "insecure": True,
        "metrics.listen": "",
        "server.state": "/s",
        "server.socket": None,
    }
    config = load(tmp_path, FULL.replace("teamA = [1]", "teamA = []"), said)
    assert config.listen == (TcpEndpoint("0.0.0.0", 1),)
    assert config.devices == (DeviceSpec("emulated", GIB),)
    assert (config.metrics, config.state) == (None, "/s")


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
            "'gpu' is not a device: write emulated, emulated:8GiB, emulated:8GiB,mig=1g.10gb, cuda",
        ),
        ("[tenants.bob]\nmemory = 256", "tenants.bob.memory: '256' is 256 bytes"),
        ("[tenants.bob]\nborrow_memory = '256'", "did you mean 256MiB?"),
        ("[tenants.bob]\nquota = {m = {memory = 8}}", "did you mean 8MiB?"),
        ("[leases]\nmemory = 3000", "leases.memory: '3000' is 3000 bytes"),
        ("devices = ['emulated:1']", "an emulated device needs at least 1MiB"),
        ("devices = ['emulated:900000TiB']", "an emulated device has at most 512 GiB"),
        (
            "[leases]\npolicy = 'greedy'",
            "leases.policy is 'greedy', which is not one of none, fixed",
        ),
        ("[leases]\npolicy = 'fixed'", "leases.policy: fixed needs a share above 0: leases.share"),
        (
            "[leases]\npolicy = 'burst'\nlimit = 0.5",
            "leases.policy: the policy burst makes the limit 100% and asked for is 50%; leave the "
            "limit or the policy out (leases.share, leases.limit)",
        ),
        (
            "[leases]\npolicy = 'fixed'\nshare = 0.4\nlimit = 0.7",
            "leases.policy: the policy fixed makes the limit 40% and asked for is 70%",
        ),
        (
            "[leases]\npolicy = 'best-effort'\nshare = 0.1",
            "leases.policy: the policy best-effort guarantees nothing and the share is 10%",
        ),
        ("[quota]\nabsent_tenant = 'all'", "quota.absent_tenant is 'all', which is not one of"),
        ("[pools]\na = [0]\nb = [0]", "pools.b: device 0 is in the pool 'a' already"),
        ("[pools]\na = [3]", "pools.a: there is no device 3: the server has 1 device,"),
        ("[pools]\na = ['x']", "pools.a is ['x'], which is not a list of whole numbers"),
        (
            "[pools]\nteamA = []\n[tenants.typo]\npools = ['public', 'publik']",
            "tenants.typo.pools: there is no pool 'publik', only public, teamA: correct the name, "
            "or add it to [pools] (as [] if no device here is in it)",
        ),
        ("[tenants.a]\nmax_priority = 101", "tenants.a.max_priority is 101, which is not a whole"),
        ("[tenants.a]\nquota = 3", "tenants.a.quota is 3, which is not a table"),
        (
            "[tenants.a.quota.m]\nshare = 'many'",
            "tenants.a.quota.m.share: 'many' is not a number of devices: write 2.5",
        ),
        ("[tenants.a.quota.m]\nshares = 1", "unknown key 'tenants.a.quota.m.shares'"),
        ("devices = []", "a server has 1 to 64 devices, asked for are 0"),
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
        (
            "[leases]\nmemory = '120%'",
            "leases.memory: '120%' is more than the whole: write at most 100%",
        ),
        ("[leases]\nmemory = 0", "leases.memory: '0' is nothing: a lease needs some memory"),
        ("[leases]\nmemory = true", "leases.memory is True, which is not bytes"),
        ("[emulated]\ntiming = 'fast'", "emulated.timing: 'fast' is not normal, hostile or"),
        ("[emulated]\ntiming = 'hostile:x'", "emulated.timing: 'hostile:x' is not normal"),
        ("[emulated]\nlaunch_seconds = 0", "emulated.launch_seconds is 0, which is not a whole"),
        ("[quota]\nmax_kernel_seconds = 0", "quota.max_kernel_seconds is 0, which is not a"),
        ("devices = ['emulated:3Xi']", "rgpu.toml: devices: 'emulated:3Xi' is not a device: '3Xi'"),
        ("listen = ['a:b']", "rgpu.toml: listen: 'a:b' is not an address"),
        ("metrics = '127.0.0.1'", "metrics: '127.0.0.1' is not HOST:PORT"),
        ("[workers]\nlog = -5", "workers.log is -5, which is not bytes"),
        ("metrics = 'unix:/x'", "metrics: 'unix:/x' is not HOST:PORT"),
        ("metrics = '0.0.0.0:1'", "0.0.0.0:1 can be reached from other machines"),
        ("listen = ['gpu-node:7700']", "gpu-node:7700 can be reached from other machines"),
        ("listen = ['0.0.0.0:1']", "name another tokens file (--tokens FILE)"),
        ("[identity]\nrequire = 'maybe'", "identity.require is 'maybe', which is not one of"),
        ("[identity]\noperators = ['*']", "identity.operators: a tenant is 1 to 256"),
        ("[identity.users]\nnobody-here = 'a'", "identity.users.nobody-here: this machine has no"),
        ("[identity.users]\n0 = ''", "identity.users.0: a tenant is 1 to 256"),
        ("[identity]\ntoken = 'x'", "unknown key 'identity.token'; did you mean 'tokens'?"),
        (
            "metrics = '0.0.0.0:1'\n[identity]\ntokens = '/t'",
            "name a tokens file and identity.operators",
        ),
        ("listen = [", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_needs_access_tokens_reads_the_file_that_rgpu_token_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens.toml"
    monkeypatch.setattr(settings, "default_tokens_file", lambda: file)
    wide = "listen = ['0.0.0.0:1']\n"
    with pytest.raises(UsageError, match="`rgpu token new TENANT` writes "):
        load(tmp_path, wide)
    file.touch()
    assert load(tmp_path, wide).identity.tokens == str(file)
    for text in ("", "insecure = true\n" + wide, f"{wide}[tls]\nclient_ca = '/ca.pem'\n"):
        assert load(tmp_path, text).identity.tokens == ""
    assert load(tmp_path, f"{wide}[identity]\ntokens = '/t'\n").identity.tokens == "/t"


@pytest.mark.parametrize("key", ["claim_key", "pod_keys"])
def test_credentials_of_claims_say_who_clients_on_other_machines_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(settings, "default_tokens_file", lambda: tmp_path / "none")
    wide = f"listen = ['0.0.0.0:1']\n[identity]\n{key} = '/k'\n"
    assert load(tmp_path, wide).identifies
    # An operator has an access token.
    with pytest.raises(UsageError, match=r"name a tokens file and identity\.operators"):
        load(tmp_path, f"metrics = '0.0.0.0:1'\n{wide}")


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("policy = 'burst'", (0, 1_000_000)),
        ("policy = 'burst'\nshare = 0.4", (400_000, 1_000_000)),
        ("policy = 'burst'\nlimit = 1", (0, 1_000_000)),
        ("policy = 'fixed'\nshare = 0.4", (400_000, 1_000_000)),
        ("policy = 'best-effort'", (0, 1_000_000)),
        ("policy = 'best-effort'\nshare = 0\nlimit = 0.5", (0, 500_000)),
        ("share = 0.4\nlimit = 0.5", (400_000, 500_000)),
    ],
)
def test_what_the_file_leaves_out_contradicts_no_policy(
    tmp_path: Path, text: str, shares: tuple[int, int]
) -> None:
    policy = load(tmp_path, f"[leases]\n{text}").policy
    assert (policy.default_share_request_ppm, policy.default_share_limit_ppm) == shares


def test_a_model_that_no_device_here_has_is_told(tmp_path: Path) -> None:
    text = "[tenants.typo.quota]\n'rgpu emulated devise' = {}\n'rgpu emulated device' = {}\n"
    config = load(tmp_path, text + "[tenants.bob]\n")
    device = Device(0, "emulated", GIB, GIB, model="rgpu emulated device")
    assert strange_models(config, Inventory((device,), {}, {}, {})) == [
        "tenants.typo.quota: no device of this server is a 'rgpu emulated devise'; its models are "
        "'rgpu emulated device'"
    ]
    known = Inventory(
        (device, Device(1, "cuda", GIB, GIB, model="rgpu emulated devise")), {}, {}, {}
    )
    assert strange_models(config, known) == []


def test_with_access_tokens_other_machines_may_come(tmp_path: Path) -> None:
    text = "listen = ['0.0.0.0:1']\n[identity]\ntokens = '~/t'"
    assert load(tmp_path, text).identity.tokens == str(Path("~/t").expanduser())
    said = {"identity.tokens": "t", "listen": ["0.0.0.0:1"]}
    assert load_config(None, said).identity.tokens == str(Path("t").absolute())
    text = "metrics='0.0.0.0:1'\nlisten = ['0.0.0.0:1']\n[identity]\ntokens='/t'\noperators=['o']"
    assert load(tmp_path, text).metrics == TcpEndpoint("0.0.0.0", 1)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: there is no such file"):
        load_config(tmp_path / "nothing.toml", {})


def test_a_default_memory_in_bytes_or_as_a_part(tmp_path: Path) -> None:
    assert default_memory_bytes(load(tmp_path, "[leases]\nmemory = '4096B'"), GIB) == 4096
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
        load_config(path, {})
