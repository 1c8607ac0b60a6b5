"""The threads of graphs with many branches on the emulated device."""

import select
from pathlib import Path

from helpers.waiting import wait_until

from worker.client import Client, session
from worker.graphs import MAGIC, graph, instantiate, wait_value

GRAPHS, BRANCHES = 40, 16
MOST_LANE_THREADS = 256
OTHER_THREADS = GRAPHS + 64
STREAMS, EXECS = 1000, 50


def _threads(client: Client) -> int:
    return len(list(Path(f"/proc/{client.process.pid}/task").iterdir()))


def _settled(client: Client) -> int:
    """The number of threads when it no longer changes."""
    wait_until(lambda: _threads(client) > MOST_LANE_THREADS)
    before, same = 0, 0
    while same < 20:
        now = _threads(client)
        before, same = now, same + 1 if now == before else 0
        select.select([], [], [], 0.02)
    return before


def test_the_lanes_of_all_graphs_share_a_number_of_threads() -> None:
    """Branches without a thread run in the thread of their launch, and the graphs come to their
    end.
    """
    with session() as client:
        flag = client.alloc(4096)
        client.upload(flag, bytes(4096))
        waits = MAGIC + graph([wait_value(flag, 1)] * BRANCHES)
        for number in range(GRAPHS):
            client.post("rgpuStreamCreate", stream=STREAMS + number, flags=1, priority=0)
            assert instantiate(client, EXECS + number, waits) == 0
            values = {"exec": EXECS + number, "stream": STREAMS + number, "delivers": 0}
            client.post("rgpuGraphLaunch", **values)
        client.call("rgpuPing", echo=1)
        assert _settled(client) <= MOST_LANE_THREADS + OTHER_THREADS
        client.post("rgpuStreamCreate", stream=STREAMS - 1, flags=1, priority=0)
        client.write_value(STREAMS - 1, flag, 1)
        for number in range(GRAPHS):
            client.call("rgpuStreamSynchronize", stream=STREAMS + number)
