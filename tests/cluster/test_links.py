"""The stream of one node: orders that go out, and answers to them."""

from __future__ import annotations

import asyncio

import pytest

from rgpu_cluster.core.actions import Revoke
from rgpu_cluster.core.errors import PoolError
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.manager import links
from rgpu_cluster.manager.links import NodeLink
from rgpu_cluster.manager.shell import Shell
from rgpu_common.v1 import agent_pb2

RUN = "run-" + "0" * 32


def link() -> NodeLink:
    report = agent_pb2.NodeReport(name="n1", server=bytes(16), generation=1, address="n1:7700")
    made = NodeLink(Shell(Manager()), report, 0)
    made.reported(report)
    return made


def answer(attempt: int = 1) -> agent_pb2.AgentMessage:
    gone = agent_pb2.RevokeAnswer(request_id=RUN, attempt=attempt)
    return agent_pb2.AgentMessage(revoked=gone)


def test_an_order_that_goes_out_twice_may_be_answered_twice() -> None:
    """Two clients of a tenant may release one reservation at once: its node did nothing wrong."""
    node = link()
    node.revoke(Revoke(RUN, "n1", 1))
    node.revoke(Revoke(RUN, "n1", 1))
    node.heard(answer())
    node.heard(answer())
    with pytest.raises(PoolError, match="revoked what it was not asked to"):
        node.heard(answer())


def test_a_node_that_owes_too_many_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads all orders and answers none, so that no queue grows, but the list of questions."""
    monkeypatch.setattr(links, "_MOST_UNANSWERED", 10)

    async def read_all() -> int:
        node = link()
        for count in range(100):
            node.revoke(Revoke(RUN, "n1", count))
            if await node.next() is None:
                return count
        return -1

    assert asyncio.run(read_all()) == 10


def test_what_a_node_says_adds_no_line_to_a_log(caplog: pytest.LogCaptureFixture) -> None:
    node = link()
    node._grants.add((RUN, 1))
    node._measures["n2"] += 1
    wild = "\x1b[2Jno\nmanager: all is well" + "x" * 1000
    refused = agent_pb2.GrantAnswer(request_id=RUN, attempt=1, sentence=wild)
    with caplog.at_level("INFO"):
        node.heard(agent_pb2.AgentMessage(granted=refused))
        node.heard(agent_pb2.AgentMessage(path=agent_pb2.PathReport(node="n2", error=wild)))
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 600


def test_each_answer_takes_one_order_off_what_is_owed() -> None:
    node = link()
    for count in (1, 2, 2):
        node.revoke(Revoke(RUN, "n1", count))
    node.heard(answer(2))
    assert node._revokes == {(RUN, 1): 1, (RUN, 2): 1}
    node.heard(answer(2))
    # What is owed no more takes no room.
    assert [*node._revokes] == [(RUN, 1)]
