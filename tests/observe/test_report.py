"""`rgpu quota report`: its numbers, a picture that is well-formed for any names, and the record."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from helpers.server import Server, rgpu_command
from helpers.waiting import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from observe.load import Load
from rgpu_client.observe.chart import MOST_LINES, Shown, draw
from rgpu_client.observe.usage import usage_of
from rgpu_common.installing import install_words
from rgpu_common.v1 import observe_pb2, observe_pb2_grpc
from rgpu_common.v1.observe_pb2 import GetRecordResponse, UsageSeries

SVG = "{http://www.w3.org/2000/svg}"


def series(
    tenant: str, share: int, steps: int = 20, absent: int = 0, device: int = 0
) -> UsageSeries:
    there = [0] * absent + [1] * (steps - absent)
    return UsageSeries(
        tenant=tenant,
        device=device,
        leases=there,
        share_ppm=[share * x for x in there],
        request_ppm=[300_000 * x for x in there],
        limit_ppm=[700_000 * x for x in there],
        waiting_ppm=[100_000 * x for x in there],
        throttled_ppm=[0] * steps,
        memory_used_bytes=[1 << 20] * steps,
        memory_limit_bytes=[1 << 30] * steps,
        launches=[7 * x for x in there],
    )


def record(*some: UsageSeries, steps: int = 20) -> GetRecordResponse:
    return GetRecordResponse(start_seconds=1e9, step_seconds=1, steps=steps, series=some)


def words(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_picture_says_what_it_shows() -> None:
    usage = usage_of(record(series("alice", 400_000), series("bob", 250_000, absent=10)))
    said = words(draw(usage, Shown("127.0.0.1:7700"), {0: "H200"}))
    for expected in ("Device 0: H200", "alice", "bob", "mean 40.0 %", "mean 25.0 %", "100 %",
                     "guaranteed 30 %", "limit 70 %", "waited 10 %", "share of the device"):  # fmt: skip
        assert expected in said
    assert any(word.startswith("Share of device time") for word in said)
    assert sum(":" in word and len(word) == 8 for word in said) >= 4  # times along the axes


def test_the_seams_of_programs_are_shown_where_they_are_not_the_drivers_alone() -> None:
    alice, bob = series("alice", 400_000), series("bob", 250_000)
    alice.seams.extend(["driver", "torch"])
    bob.seams.append("driver")
    usage = usage_of(record(alice, bob))
    assert [line.seams for line in usage.lines] == [("driver", "torch"), ("driver",)]
    said = words(draw(usage, Shown("x"), {}))
    assert [word for word in said if "seams" in word] == ["seams driver, torch"]


def leases_of(*named: tuple[str, str, str]) -> GetRecordResponse:
    rows = []
    for tenant, key, lease in named:
        row = series(tenant, 100_000)
        row.key, row.lease_id = key, lease
        rows.append(row)
    return record(*rows)


def fills(svg: str) -> list[str]:
    return [
        e.get("fill", "") for e in ET.fromstring(svg).iter(f"{SVG}rect") if e.get("width") == "11"
    ]


def test_leases_of_one_tenant_are_told_apart() -> None:
    usage = usage_of(
        leases_of(
            ("alice", "notebook-of-group-a", "lease-1"), ("alice", "notebook-of-group-b", "lease-2"),
            ("alice", "train", "lease-3"), ("bob", "train", "lease-4"), ("bob", "train", "lease-5"),
        )
    )  # fmt: skip
    svg = draw(usage, Shown("x", by_lease=True), {})
    said = words(svg)
    assert "Share of device time, by lease" in said
    # Above each panel, and shortened beside the areas.
    for name in ("alice / notebook-of-group-a", "alice / notebook-of-group-b", "alice / train",
                 "bob / train (lease-4)", "bob / train (lease-5)"):  # fmt: skip
        assert name in said
    beside = [word for word in said if "…" in word]
    assert len(set(beside)) == len(beside)
    # Each lease has its own colour, the same beside the areas and above its panel.
    colours = fills(svg)
    assert len(colours) == 10
    assert len(set(colours)) == 5


def test_a_title_says_whose_leases_are_shown() -> None:
    usage = usage_of(leases_of(("alice", "a", "lease-1"), ("alice", "b", "lease-2")))
    shown = Shown("x", by_lease=True, tenant="alice")
    assert "Share of device time of tenant alice, by lease" in words(draw(usage, shown, {}))
    assert "Share of device time, by tenant" in words(draw(usage, Shown("x"), {}))


def test_it_begins_with_the_first_lease() -> None:
    usage = usage_of(record(series("alice", 400_000, absent=15), series("bob", 1, absent=12)))
    assert (usage.start, usage.steps) == (1e9 + 12, 8)
    (alice, _) = usage.lines
    assert alice.present == (False,) * 3 + (True,) * 5
    assert alice.mean(alice.share) == pytest.approx(0.4)


def test_many_tenants_are_drawn_as_few() -> None:
    usage = usage_of(record(*[series(f"t{i:02}", 1000 * i) for i in range(40)]))
    said = words(draw(usage, Shown("x"), {}))
    assert f"{40 - MOST_LINES + 1} others" in said
    assert "t39" in said
    assert "t00" not in said


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1), st.integers(0, 4_000_000), st.integers(1, 30), st.integers(0, 30))
def test_any_record_gives_a_well_formed_picture(
    tenant: str, share: int, steps: int, absent: int
) -> None:
    some = series(tenant, share, steps, min(absent, steps))
    svg = draw(usage_of(record(some, steps=steps)), Shown(tenant, tenant=tenant), {0: tenant})
    root = ET.fromstring(svg.encode("utf-8", "replace"))
    height = float(root.get("height", "0"))
    for shape in (*root.iter(f"{SVG}polygon"), *root.iter(f"{SVG}polyline")):
        for point in (shape.get("points") or "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 980
            assert 0 <= y <= height


def test_no_lease_is_a_picture_too() -> None:
    assert "no lease in this time" in words(draw(usage_of(record()), Shown("x"), {}))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        loads = [
            Load(running.tcp, RGPU_TENANT=tenant, RGPU_SHARE=share)
            for tenant, share in (("alice", "0.6"), ("bob", "0.4"))
        ]
        try:
            for load in loads:
                load.go()
            wait_until(lambda: steps_with_both(running) >= 4, 60)
            yield running
        finally:
            for load in loads:
                load.close()


def ask(server: Server, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [rgpu_command(), "quota", "report", "--server", server.tcp, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def steps_with_both(server: Server) -> int:
    series = json.loads(ask(server, "--json").stdout)["series"]
    busy = [sum(share > 200_000 for share in one["share_ppm"]) for one in series]
    return min(busy) if len(busy) == 2 else 0


def test_a_server_tells_what_it_recorded(server: Server) -> None:
    table = ask(server).stdout
    assert "alice" in table
    assert "60.0%" in table
    assert "seams" in table.splitlines()[0]
    assert all(line.rstrip().endswith("driver") for line in table.splitlines()[1:])
    by_lease = json.loads(ask(server, "--by-lease", "--tenant", "bob", "--json").stdout)["series"]
    assert [one["tenant"] for one in by_lease] == ["bob"]
    assert by_lease[0]["lease_id"].startswith("lease-")


def test_the_record_of_one_lease(server: Server) -> None:
    by_lease = json.loads(ask(server, "--by-lease", "--json").stdout)["series"]
    (bob,) = [one["lease_id"] for one in by_lease if one["tenant"] == "bob"]
    with grpc.insecure_channel(server.tcp) as channel:
        stub = observe_pb2_grpc.ObserveServiceStub(channel)
        answer = stub.GetRecord(observe_pb2.GetRecordRequest(lease_id=bob), timeout=60)
    assert [(one.tenant, one.lease_id) for one in answer.series] == [("bob", bob)]


def test_a_picture_is_written(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "shares.svg"
    done = ask(server, "--out", str(out), "--since", "1h")
    assert (done.returncode, done.stdout) == (0, f"the picture is in {out}\n")
    assert {"alice", "bob"} <= set(words(out.read_text()))


def test_a_png_is_one_or_says_what_is_missing(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "shares.png"
    done = ask(server, "--out", str(out))
    try:
        import cairosvg  # noqa: F401
    except (ImportError, OSError):
        assert done.returncode == 1
        assert install_words("report") in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--since", "ten"), "--since 'ten' is not a time"),
        (("--since", "0m"), "--since '0m' is not a time"),
        (("--out", "x.gif"), "is neither .svg nor .png"),
        (("--out", "/nowhere/x.svg"), "name a file that you may write to, in a folder that"),
    ],
)
def test_mistakes_are_sentences(server: Server, options: tuple[str, ...], sentence: str) -> None:
    done = ask(server, *options)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_the_light_client_needs_no_server_packages() -> None:
    code = (
        "import sys, rgpu_client.observe.top, rgpu_client.observe.report;"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('rgpu_server', 'prometheus_client', 'cairosvg', 'curses', 'matplotlib')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
