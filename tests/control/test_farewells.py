"""What clients of sessions that have ended are told."""

from __future__ import annotations

from rgpu_server.service.farewells import ENDED, MAX_REMEMBERED, Farewells


def secret(session: int) -> bytes:
    return session.to_bytes(32, "big")


def test_a_tenants_sessions_push_out_the_reason_of_no_other_tenant() -> None:
    farewells = Farewells()
    farewells.note(1, "an operator revoked its lease")
    farewells.add(1, "bob", secret(1), "")
    for session in range(2, 2 * MAX_REMEMBERED):
        farewells.add(session, "alice", secret(session), "it left")
    assert farewells.sentence(1, secret(1)) == f"{ENDED}: an operator revoked its lease"
    assert not farewells.knows(1, secret(2))
    assert farewells.knows(2 * MAX_REMEMBERED - 1, secret(2 * MAX_REMEMBERED - 1))
    assert farewells.sentence(2, secret(2)) == ENDED
