"""What a node has measured: in the server, in its NodePaths, and for the next manager."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cluster import agent_world as samples
from cluster.samples import node
from rgpu_cluster.core.events import PathMeasured
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.paths import End, Figures, Paths
from rgpu_cluster.kubernetes import node_paths
from rgpu_cluster.kubernetes.agent.own_paths import OwnPaths
from rgpu_cluster.kubernetes.node_paths import Row, client_of, merged, rows_in, rows_of, status_of
from rgpu_cluster.kubernetes.times import written
from rgpu_cluster.manager.earlier_paths import MOST_LOOKS, EarlierPaths
from rgpu_cluster.manager.shell import Shell
from rgpu_common.v1 import agent_pb2
from rgpu_server.agent.measured import MOST_CLASSES, MeasuredPaths

FIGURES = Figures(60_000, 5_000, 1_000_000, 2_000_000, 300_000, "ucx")
NOW = 1_800_000_000
HERE, THERE = End("r3", "100G"), End("r4", "25G")


def measured(rack: str = "r4", at: int = NOW, **more: Any) -> agent_pb2.MeasuredPath:
    said: dict[str, Any] = {
        "nic": "25G", "transport": "ucx", "round_trip_ns": 60_000, "jitter_ns": 5_000,
        "up_rate": 1_000_000, "down_rate": 2_000_000, "message_rate": 300_000, **more,
    }  # fmt: skip
    return agent_pb2.MeasuredPath(rack=rack, measured_at=at, **said)


def report(*paths: agent_pb2.MeasuredPath, gigabits: int = 100) -> agent_pb2.NodeReport:
    return samples.report(paths=paths, devices=[samples.nic("eth0", gigabits)])


def content(*rows: Row, client: End = HERE) -> dict[str, Any]:
    status = status_of(client, rows)
    return {"status": {name: value for name, value in status.items() if value is not None}}


# The server


def test_a_server_remembers_the_newest_figures_of_each_class() -> None:
    times = iter(range(NOW, NOW + 1000))
    paths = MeasuredPaths(lambda: next(times))
    order = agent_pb2.MeasureOrder(address="b:7700", node="b", rack="r4", nic="25G")
    first = agent_pb2.PathReport(node="b", round_trip_ns=1000, transport="tcp")
    paths.note(order, first)
    paths.note(order, agent_pb2.PathReport(node="b", error="no path works"))
    paths.note(order, agent_pb2.PathReport(node="b", round_trip_ns=2000, transport="tcp"))
    (row,) = paths.rows()
    assert (row.rack, row.nic, row.round_trip_ns, row.measured_at) == ("r4", "25G", 2000, NOW + 1)
    for number in range(2 * MOST_CLASSES):
        paths.note(agent_pb2.MeasureOrder(node="b", rack=f"s{number}"), first)
    paths.note(agent_pb2.MeasureOrder(node="b", rack="x" * 64), first)
    assert [one.rack for one in paths.rows()] == [f"s{n}" for n in range(64, 128)]


# The object


def test_rows_go_into_an_object_and_come_out_of_it() -> None:
    rows = rows_of(report(measured(), measured("", nic="", transport="tcp")))
    assert rows[0] == Row(THERE, FIGURES, NOW)
    made = content(*rows)
    assert rows_in(made) == rows
    assert client_of(made) == HERE
    status = made["status"]
    assert (status["measured"], status["slowestRoundTrip"]) == (2, "60us")
    assert status["measuredAt"] == status["paths"][0]["measuredAt"] == written(NOW)


def test_paths_that_cannot_be_are_left_out() -> None:
    wrong = (
        measured("x" * 64), measured(nic="a\nb"), measured(transport=""), measured(round_trip_ns=0),
        measured(transport="t" * 17), measured(up_rate=1 << 51), measured(at=0), measured(at=1 << 60),
    )  # fmt: skip
    assert rows_of(report(*wrong, measured())) == [Row(THERE, FIGURES, NOW)]
    assert len(rows_of(report(*(measured(f"s{n}") for n in range(100))))) == node_paths.MOST_ROWS
    (good,) = content(Row(THERE, FIGURES, NOW))["status"]["paths"]
    for name, value in (
        ("server", None), ("server", {"rack": 7}), ("transport", ["tcp"]), ("measuredAt", "now"),
        ("roundTripNanoseconds", "60"), ("roundTripNanoseconds", None), ("jitterNanoseconds", -1),
        ("messagesPerSecond", 1.5),
    ):  # fmt: skip
        assert rows_in({"status": {"paths": [{**good, name: value}]}}) == [], name
    for odd in ({}, {"status": None}, {"status": []}, {"status": {"paths": {"a": 1}, "client": 3}}):
        assert (rows_in(odd), client_of(odd)) == ([], None)


def test_the_newest_row_of_each_class_stays_until_it_is_old() -> None:
    old, new = Row(THERE, FIGURES, NOW - 500), Row(THERE, replace(FIGURES, jitter_ns=1), NOW - 5)
    assert merged([new], [old], NOW) == merged([old], [new], NOW) == [new]
    other = Row(THERE, replace(FIGURES, transport="tcp"), NOW - 86_399)
    assert merged([new, other], [], NOW) == [other, new]
    assert merged([new, other], [], NOW + 1) == [new]
    # A clock that was a day ahead has written it.
    ahead = Row(THERE, FIGURES, NOW + 86_400)
    assert merged([ahead], [new], NOW) == [new]
    many = [Row(End(f"s{n}", ""), FIGURES, NOW - n) for n in range(100)]
    assert {row.server.rack for row in merged(many, [], NOW)} == {f"s{n}" for n in range(64)}


def test_an_object_is_written_if_it_says_something_new() -> None:
    paths = OwnPaths()
    paths.found(None)
    assert paths.wanted(report(), NOW) is None
    first = paths.wanted(report(measured()), NOW)
    assert first is not None
    paths.written(first)
    assert paths.wanted(report(measured()), NOW + 60) is None
    again = paths.wanted(report(measured(at=NOW + 60)), NOW + 60)
    assert again is not None
    assert again["paths"][0]["measuredAt"] == written(NOW + 60)
    # It is a day old.
    paths.written(again)
    gone = paths.wanted(report(measured(at=NOW + 60)), NOW + 60 + 86_400)
    assert gone is not None
    assert (gone["paths"], gone["measuredAt"], gone["slowestRoundTrip"]) == ([], None, None)


def test_a_restart_of_server_and_agent_loses_no_row() -> None:
    paths = OwnPaths()
    known = Row(End("r5", ""), FIGURES, NOW - 100)
    paths.found(content(known))
    assert paths.wanted(report(), NOW) is None
    status = paths.wanted(report(measured()), NOW)
    assert status is not None
    assert [one["server"]["rack"] for one in status["paths"]] == ["r4", "r5"]


def test_rows_are_those_of_the_end_at_which_the_node_is() -> None:
    """The node has lost its fast interface: what it has measured before is of another path."""
    paths = OwnPaths()
    paths.found(content(Row(THERE, FIGURES, NOW - 100)))
    status = paths.wanted(report(measured(at=NOW - 50), gigabits=1), NOW)
    assert status is not None
    assert (status["client"], status["paths"]) == ({"rack": "r3", "nic": "1G"}, [])
    later = paths.wanted(report(measured(at=NOW + 1), gigabits=1), NOW + 2)
    assert later is not None
    assert later["measured"] == 1


# Degraded paths


def story(*steps: tuple[int, dict[str, dict[str, Any]]]) -> list[bool]:
    """Has an agent hear of measurements, by rack, at some seconds; returns when the node's network
    was degraded.
    """
    paths, found = OwnPaths(), []
    known: dict[str, agent_pb2.MeasuredPath] = {}
    for at, racks in steps:
        known |= {rack: measured(rack, NOW + at, **more) for rack, more in racks.items()}
        status = paths.wanted(report(*known.values()), NOW + at)
        if status is not None:
            paths.written(status)
        found.append(paths.is_degraded(NOW + at))
    return found


SLOW = {"round_trip_ns": 2_000_000}
THIN = {"down_rate": 100_000_000}
WIDE = {"down_rate": 5_000_000_000}


def test_a_node_is_degraded_if_most_of_its_paths_have_become_much_worse() -> None:
    good: dict[str, dict[str, Any]] = {"r4": {}, "r5": {}, "r6": {}}
    assert story((0, good), (600, {"r4": SLOW}), (700, {"r5": SLOW}), (800, {"r4": {}})) == [
        False, False, True, False,
    ]  # fmt: skip
    # A path that was always so is as good as ever.
    assert story((0, {"r4": SLOW, "r5": SLOW}), (600, {"r4": SLOW, "r5": SLOW})) == [False, False]
    # Many times slower, and still fast.
    fast = {"round_trip_ns": 900_000}
    assert story((0, good), (600, {"r4": fast, "r5": fast})) == [False, False]
    # One path says nothing of which end is at fault.
    assert story((0, {"r4": {}}), (600, {"r4": SLOW})) == [False, False]


def test_paths_that_have_become_thin_count_and_another_transport_does_not_hide_it() -> None:
    wide = {"r4": WIDE, "r5": WIDE}
    assert story((0, wide), (600, {"r4": THIN, "r5": THIN})) == [False, True]
    tcp = {**THIN, "transport": "tcp"}
    assert story((0, wide), (600, {"r4": tcp, "r5": tcp})) == [False, True]


def test_bad_figures_count_for_half_an_hour_and_what_stays_becomes_usual() -> None:
    good: dict[str, dict[str, Any]] = {"r4": {}, "r5": {}}
    bad = {"r4": SLOW, "r5": SLOW}
    assert story((0, good), (600, bad), (2400, {}), (2401, {})) == [False, True, True, False]
    steps = [(600 * number, bad) for number in range(1, 60)]
    assert story((0, good), *steps)[-1] is False


def test_a_new_agent_knows_what_is_usual_from_the_object() -> None:
    first = OwnPaths()
    status = first.wanted(report(measured("r4"), measured("r5")), NOW)
    assert status is not None
    assert status["paths"][0]["usual"] == {
        "roundTripNanoseconds": 60_000, "upBytesPerSecond": 1_000_000,
        "downBytesPerSecond": 2_000_000,
    }  # fmt: skip
    second = OwnPaths()
    second.found({"status": status})
    worse = [measured(rack, NOW + 600, **SLOW) for rack in ("r4", "r5")]
    assert second.wanted(report(*worse), NOW + 600)
    assert second.is_degraded(NOW + 600)
    # The same figures again change nothing of what is usual.
    status = second.wanted(report(*worse), NOW + 600)
    assert status == second.wanted(report(*worse), NOW + 700)


# The next manager


NODES = [node("n3", rack=HERE.rack, nic=HERE.nic), node("n4", rack=THERE.rack, nic=THERE.nic)]


def test_a_manager_learns_rows_with_their_age_once_both_ends_are_there() -> None:
    earlier = EarlierPaths()
    earlier.remember("n3", HERE, [(THERE, FIGURES, NOW - 100), (End("r9", ""), FIGURES, NOW)])
    assert earlier.due([], Paths(), NOW) == []
    assert earlier.due(NODES[:1], Paths(), NOW) == []
    (event,) = earlier.due(NODES, Paths(), NOW + 1)
    assert event == PathMeasured(HERE, THERE, replace(FIGURES, age_seconds=101))
    assert earlier.due(NODES, Paths(), NOW + 2) == []
    (other,) = earlier.due([*NODES, node("n9", rack="r9")], Paths(), NOW + 3)
    assert other.server == End("r9", "")


def test_what_is_newer_is_not_replaced() -> None:
    earlier, paths = EarlierPaths(), Paths({(HERE, THERE): replace(FIGURES, age_seconds=50)})
    same = node("m3", rack=HERE.rack, nic=HERE.nic)
    for name, age in (("n3", 60), ("m3", 40)):
        earlier.remember(name, HERE, [(THERE, FIGURES, NOW - age)])
    (event,) = earlier.due([*NODES, same], paths, NOW)
    assert event.figures.age_seconds == 40
    earlier.remember("n3", HERE, [(THERE, FIGURES, NOW - 60)])
    assert earlier.due(NODES, paths, NOW) == []


def test_a_node_says_nothing_of_the_paths_of_others() -> None:
    earlier = EarlierPaths()
    earlier.remember("n4", HERE, [(THERE, FIGURES, NOW)])
    assert earlier.due(NODES, Paths(), NOW) == []


def test_nodes_that_do_not_come_are_not_waited_for() -> None:
    earlier = EarlierPaths()
    earlier.remember("n3", HERE, [(THERE, FIGURES, NOW)])
    for _ in range(MOST_LOOKS):
        assert earlier.due([], Paths(), NOW) == []
    assert earlier.due(NODES, Paths(), NOW) == []


class Connected:
    """A link that counts measurements."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def measure(self, to: Any) -> None:
        self.asked.append(to.name)


def test_a_shell_measures_only_what_nobody_has_measured() -> None:
    shell = Shell(Manager(), wall_clock=lambda: NOW)
    links: dict[str, Any] = {one.name: Connected() for one in NODES}
    shell.links.update(links)
    for one in NODES:
        assert shell.core.pool.report(one, {})
    # Those of a path this slow would be doubted, and measured again.
    fast = replace(FIGURES, up_rate=10**9, down_rate=10**9)
    shell.earlier_paths.remember("n3", HERE, [(THERE, fast, NOW - 100)])
    shell._probe()
    assert (links["n3"].asked, links["n4"].asked) == ([], ["n3"])
    assert shell.core.paths.measured()[HERE, THERE].age_seconds == 100
