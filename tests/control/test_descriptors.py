"""How the limit of open files reduces the configured numbers."""

from __future__ import annotations

import re

import pytest

from rgpu_common.endpoints import parse_endpoint
from rgpu_server.config import Limits, ServerConfig
from rgpu_server.core.policy import Policy
from rgpu_server.descriptors import fitted

CONFIG = ServerConfig(listen=(parse_endpoint("127.0.0.1:0"),), devices=())


def files(config: ServerConfig) -> int:
    """Returns the descriptors that sessions, claims, leases and connections need at their
    maximum.
    """
    policy, limits = config.policy, config.limits
    assert policy.max_claims is not None
    return (
        8 * policy.max_sessions
        + 4 * policy.max_claims
        + 3 * (policy.max_leases + limits.control_connections)
        + policy.max_waiting[0]
        + limits.handshakes
    )


def test_with_enough_open_files_nothing_is_lowered() -> None:
    assert fitted(CONFIG, 1 << 20) == (CONFIG, "")
    assert fitted(CONFIG, None) == (CONFIG, "")


@pytest.mark.parametrize("limit", [512, 1024, 4096])
def test_with_few_open_files_everything_has_a_part(limit: int) -> None:
    config, sentence = fitted(CONFIG, limit)
    assert files(config) <= limit - 256
    assert f"{limit} open files" in sentence
    assert config.policy.max_claims is not None
    assert config.policy.max_claims >= 2
    assert config.policy.max_sessions >= 12
    for count, name in re.findall(r"(\d+) ([a-zA-Z ]+) instead of", sentence):
        assert int(count) >= 1, name
    assert "raise the hard limit (ulimit -Hn" in sentence


def test_the_documented_numbers() -> None:
    config, sentence = fitted(CONFIG, 1024)
    policy = config.policy
    assert (policy.max_sessions, policy.max_claims, policy.max_waiting) == (38, 38, (38, 16, 38))
    assert "38 runs that hold leases instead of 512" in sentence
    assert "it may need 8576" in sentence


def test_what_was_configured_lower_stays() -> None:
    small = ServerConfig(
        listen=CONFIG.listen,
        devices=(),
        policy=Policy(max_sessions=4, tenant_sessions=3, max_leases=2000, max_waiting=(8, 4, 2)),
        limits=Limits(handshakes=8, control_connections=8),
    )
    policy = fitted(small, 1024)[0].policy
    assert (policy.max_sessions, policy.tenant_sessions, policy.max_claims) == (4, 3, 8)
    assert policy.max_waiting == (8, 4, 2)
    assert policy.max_leases < 2000
