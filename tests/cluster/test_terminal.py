"""What managers, nodes and tenants wrote, on the terminal of who looks at it."""

from __future__ import annotations

from types import SimpleNamespace as Object

from rgpu_client.cluster.show import explained
from rgpu_cluster.kubernetes.explaining import pod_part
from rgpu_common.tables import fitting, table
from rgpu_common.v1 import cluster_pb2

EVIL = "a\x1b[2Jb\r\nc\u202ed"
SHOWN = "a?[2Jb??c?d"


def test_no_cell_of_a_table_changes_the_terminal() -> None:
    assert table(("node", "says"), [("n1", EVIL)]).splitlines()[1] == f"n1    {SHOWN}"
    assert EVIL not in fitting(("node", "says"), [("n1", EVIL)], (), None)


def test_no_explanation_changes_the_terminal() -> None:
    answer = cluster_pb2.ExplainResponse(
        request_id=EVIL, state=EVIL, asked=EVIL, sentence=EVIL, gives=[EVIL],
        excluded=[cluster_pb2.ExcludedCards(reason=EVIL, cards=1)],
        chosen=cluster_pb2.Alternative(cards=[EVIL]),
    )  # fmt: skip
    text = explained(answer)
    assert text.count(SHOWN) == 7
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_phase_that_a_node_made_up_changes_no_terminal() -> None:
    metadata = Object(labels=None, uid="u", namespace="team", name="train", deletionTimestamp=None)
    status = Object(phase=EVIL, conditions=None, resourceClaimStatuses=None)
    spec = Object(nodeName="n1", schedulingGates=None, resourceClaims=None)
    part = pod_part(Object(metadata=metadata, spec=spec, status=status))
    assert part.lines[0] == f"pod team/train: {SHOWN} on node n1"
