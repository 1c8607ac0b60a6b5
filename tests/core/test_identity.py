"""Identities: a table of credentials and the resulting identity, and the limit of failures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rgpu_common.clock import FakeClock
from rgpu_server.core.failures import Failures, network_of
from rgpu_server.core.identity import (
    Evidence,
    Identity,
    IdentityRules,
    Proof,
    Require,
    identify,
)
from rgpu_server.core.model import DEFAULT_TENANT, Code, Refusal

ALL = {"ops"}
PLAIN = IdentityRules()
SECURED = IdentityRules(configured=True, operators=frozenset({"ops"}))
ALWAYS = IdentityRules(Require.ALWAYS, configured=True)
NEVER = IdentityRules(Require.NEVER, configured=True)
INSECURE = IdentityRules(configured=True, insecure=True)
USERS = IdentityRules(configured=True, users={1000: "alice", 1001: "ops"}, operators=frozenset(ALL))
USERS_OF_A_TRUSTED_NETWORK = replace(USERS, insecure=True)
REMOTE, LOCAL = Evidence(), Evidence(local=True)
OWN, ALICE, BOB = (Evidence(True, uid, own) for uid, own in ((7, True), (1000, False), (2, False)))
OUT = "out"


@pytest.mark.parametrize(
    ("rules", "evidence", "expected"),
    [
        (PLAIN, REMOTE, OUT),
        (PLAIN, LOCAL, Identity(None, True, Proof.PLACE)),
        (PLAIN, OWN, Identity(None, True, Proof.OWNER)),
        (PLAIN, BOB, Identity(None, True, Proof.PLACE)),
        (SECURED, REMOTE, OUT),
        (SECURED, LOCAL, Identity(DEFAULT_TENANT, False, Proof.PLACE)),
        (SECURED, BOB, Identity(DEFAULT_TENANT, False, Proof.PLACE)),
        (SECURED, Evidence(access_token="alice"), Identity("alice", False, Proof.ACCESS_TOKEN)),
        (SECURED, Evidence(access_token="ops"), Identity("ops", True, Proof.ACCESS_TOKEN)),
        (SECURED, Evidence(certificate="alice"), Identity("alice", False, Proof.CERTIFICATE)),
        (
            SECURED,
            Evidence(certificate="a", access_token="a"),
            Identity("a", False, Proof.ACCESS_TOKEN),
        ),
        (SECURED, Evidence(certificate="alice", access_token="bob"), OUT),
        (SECURED, Evidence(local=True, bad_access_token=True), OUT),
        (SECURED, Evidence(certificate="alice", bad_access_token=True), OUT),
        (
            SECURED,
            Evidence(True, 7, True, access_token="alice"),
            Identity("alice", False, Proof.ACCESS_TOKEN),
        ),
        (ALWAYS, LOCAL, OUT),
        (ALWAYS, BOB, OUT),
        (ALWAYS, OWN, Identity(None, True, Proof.OWNER)),
        (ALWAYS, Evidence(access_token="alice"), Identity("alice", False, Proof.ACCESS_TOKEN)),
        (NEVER, REMOTE, Identity(None, False, Proof.PLACE)),
        (NEVER, Evidence(bad_access_token=True), OUT),
        (INSECURE, REMOTE, Identity(None, False, Proof.PLACE)),
        (USERS, ALICE, Identity("alice", False, Proof.USER)),
        (USERS, Evidence(True, 1001), Identity("ops", True, Proof.USER)),
        (USERS, BOB, OUT),
        (USERS, LOCAL, OUT),
        (
            USERS,
            Evidence(local=True, access_token="bob"),
            Identity("bob", False, Proof.ACCESS_TOKEN),
        ),
        (USERS_OF_A_TRUSTED_NETWORK, BOB, OUT),
        (USERS_OF_A_TRUSTED_NETWORK, LOCAL, Identity(None, False, Proof.PLACE)),
        (USERS, OWN, Identity(None, True, Proof.OWNER)),
        (USERS, Evidence(True, 2, access_token="bob"), Identity("bob", False, Proof.ACCESS_TOKEN)),
    ],
)
def test_who_it_is(rules: IdentityRules, evidence: Evidence, expected: Identity | str) -> None:
    found = identify(rules, evidence)
    if isinstance(found, Refusal):
        assert expected == OUT
        assert found.code is Code.NOT_IDENTIFIED
        assert found.sentence
    else:
        assert found == expected


def test_for_whom_it_speaks() -> None:
    anybody = Identity(None, False, Proof.PLACE)
    assert anybody.speaks_for("") == DEFAULT_TENANT
    assert anybody.speaks_for("bob") == "bob"
    alice = Identity("alice", False, Proof.ACCESS_TOKEN)
    assert alice.speaks_for("") == alice.speaks_for("alice") == "alice"
    refusal = alice.speaks_for("bob")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.NOT_ALLOWED
    operator = Identity("ops", True, Proof.ACCESS_TOKEN)
    assert operator.speaks_for("bob") == "bob"
    assert operator.speaks_for("") == "ops"
    assert [alice.sees(t) for t in ("alice", "bob")] == [True, False]
    assert operator.sees("bob")
    assert anybody.sees("bob")


def test_failures_are_answered_at_a_rate() -> None:
    clock = FakeClock()
    failures = Failures(burst=3, per_minute=6)

    def answered(peer: str, count: int) -> list[bool]:
        return [failures.answered(peer, clock.now()) for _ in range(count)]

    assert answered("a", 5) == [True, True, True, False, False]
    assert answered("b", 1) == [True]
    clock.advance(9.9)
    assert answered("a", 1) == [False]
    clock.advance(0.2)
    assert answered("a", 2) == [True, False]
    clock.advance(3600)
    assert answered("a", 5) == [True, True, True, False, False]


def test_many_addresses_have_a_bound_together_and_the_table_has_one() -> None:
    clock = FakeClock()
    failures = Failures(burst=3, per_minute=6, peers=8)
    answers = [failures.answered(f"10.0.{n >> 8}.{n & 255}", clock.now()) for n in range(1000)]
    assert sum(answers) == 30
    assert len(failures) == 8
    clock.advance(60)
    answers = [failures.answered(f"10.1.0.{n}", clock.now()) for n in range(100)]
    assert sum(answers) == 30


def test_who_is_silenced_uses_up_nothing_of_the_others() -> None:
    clock = FakeClock()
    failures = Failures(burst=3, per_minute=6)
    for _ in range(10_000):
        failures.answered("a", clock.now())
    assert failures.answered("b", clock.now())


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("local", "local"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8::9", "2001:db8:0:0::/64"),
        ("fe80::1%eth0", "fe80:0:0:0::/64"),
        ("::9", "0:0:0:0::/64"),
    ],
)
def test_a_network_of_ipv6_is_one_peer(peer: str, network: str) -> None:
    assert network_of(peer) == network
