"""Pods that name a claim which is not there."""

from __future__ import annotations

from types import SimpleNamespace as Object

from rgpu_cluster.kubernetes.missing import Missing


def pod(uid: str, *claims: str) -> Object:
    rows = [Object(name=name, resourceClaimName=name) for name in claims]
    rows.append(Object(name="made", resourceClaimName=None))  # not made from its template yet
    metadata = Object(namespace="team-a", name="p", uid=uid)
    return Object(metadata=metadata, spec=Object(resourceClaims=rows), status=None)


def test_a_claim_is_missing_at_the_second_look() -> None:
    missing, mine = Missing(), pod("1", "there", "gone")
    claims = {("team-a", "there"): Object()}
    assert [*missing.look([mine], claims)] == []
    assert [name for _, name in missing.look([mine], claims)] == ["gone"]
    # Another pod of this name is new.
    assert [*missing.look([pod("2", "gone")], claims)] == []
    assert [*missing.look([pod("2", "gone")], {("team-a", "gone"): Object()})] == []
    assert [*missing.look([pod("2", "gone")], claims)] == []
