"""Units, endpoints, clock, client settings, traces, tables: the small pure parts."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.clients import PLAIN_ADDRESSES, SECRET_ADDRESSES
from hypothesis import given
from hypothesis import strategies as st

from rgpu_client.device_names import parse_device
from rgpu_client.program_environment import client_environment
from rgpu_client.session.greeting import program_name
from rgpu_client.session.paths import check_others
from rgpu_client.settings import ClientSettings, configured_server
from rgpu_client.trace import format_trace, parse_trace
from rgpu_common.clock import FakeClock, MonotonicClock
from rgpu_common.endpoints import (
    GrpcEndpoint,
    TcpEndpoint,
    UnixEndpoint,
    cannot_listen,
    parse_endpoint,
    refuse_secret,
)
from rgpu_common.errors import EndpointError, ProtocolError, UnitError, UsageError
from rgpu_common.tables import fitting, table
from rgpu_common.units import (
    Memory,
    format_bytes,
    format_part,
    format_seconds,
    format_share,
    parse_bytes,
    parse_memory,
    parse_memory_bytes,
    parse_share,
    parse_total_share,
    spell_bytes,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("2GiB", 2 << 30),
        (" 512 MiB ", 512 << 20),
        ("1.5GB", 1_500_000_000),
        ("64kib", 64 << 10),
        ("0", 0),
        ("7 b", 7),
        ("4vmem", 1 << 30),
        ("8 vmem", 2 << 30),
        ("1  vcuda-memory ", 256 << 20),
        ("2Gi", 2 << 30),
        ("512mi", 512 << 20),
        ("1.5Ki", 1536),
        ("1ti", 1 << 40),
        ("2g", 2 << 30),
        ("512m", 512 << 20),
        ("1.5 k", 1536),
        ("2G", 2_000_000_000),
        ("256M", 256_000_000),
        ("1.5K", 1500),
        ("256B", 256),
    ],
)
def test_bytes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "-1", "1e9", "2 GiBs", "0x10", "25%", "9999999TiB", "2X", "2Gib i", "1.5vmem", "3.5",
     "9" * 40, "9" * 40 + "vmem", "9" * 5000 + "b"],
)  # fmt: skip
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("count", [1, 256, 3000, 999_999])
def test_a_bare_number_of_few_bytes_of_memory_means_another_unit(count: int) -> None:
    for parse in (parse_memory, parse_memory_bytes):
        with pytest.raises(
            UnitError, match=f"did you mean {count}MiB\\? Bytes are written {count}B"
        ):
            parse(f" {count}")
    assert parse_memory(spell_bytes(count)) == Memory(bytes=count)
    assert parse_memory_bytes("1000000") == 1_000_000


def test_percentages_need_a_whole() -> None:
    assert parse_bytes("25%", 8 << 30) == 2 << 30
    with pytest.raises(UnitError, match="or a percentage such as 25%"):
        parse_bytes("much", 8 << 30)
    with pytest.raises(UnitError, match="'150%' is more than the whole: write at most 100%"):
        parse_memory("150%")


@given(st.integers(0, 1 << 62))
def test_a_number_of_bytes_is_read_as_it_is_written(count: int) -> None:
    assert parse_bytes(str(count)) == count
    text = format_bytes(count)
    if "." not in text:
        assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "ppm"),
    [
        ("0", 0),
        ("1", 1_000_000),
        ("0.4", 400_000),
        (".5", 500_000),
        (".5%", 5_000),
        ("12.5%", 125_000),
        ("100 %", 1_000_000),
        (" 40 vcore ", 400_000),
        ("40vcore", 400_000),
        ("100 vcuda-core", 1_000_000),
    ],
)
def test_shares(text: str, ppm: int) -> None:
    assert parse_share(text) == ppm


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-.5",
        ".5vcore",
        "9" * 40 + "vcore",
        "-0.1",
        "1.1",
        "101%",
        "half",
        "nan",
        "inf",
        "1e400",
        "0vcore",
        "0.4vcore",
        "40c",
    ],
)
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UnitError, match="is not a share"):
        parse_share(text)


@pytest.mark.parametrize("text", ["8\tvmem", "8vmem\n", "1 000", "1 . 5GiB"])
def test_other_white_space_than_blanks_is_no_part_of_a_size(text: str) -> None:
    with pytest.raises(UnitError, match="is not a number of bytes"):
        parse_memory(text)


@pytest.mark.parametrize("text", ["40\t%", "40%\n", "4 0%", "0 .4"])
def test_other_white_space_than_blanks_is_no_part_of_a_share(text: str) -> None:
    with pytest.raises(UnitError, match="is not a share"):
        parse_share(text)


def test_whole_cards_are_refused_with_the_reason() -> None:
    with pytest.raises(UnitError, match="is 2 whole devices, and a session has one"):
        parse_share("200vcore")
    with pytest.raises(UnitError, match="a whole number from 1vcore to 100vcore"):
        parse_share("150vcore")


def test_a_part_of_a_device_stays_one_until_the_device_is_known() -> None:
    assert parse_memory("25%") == Memory(ppm=250_000)
    assert parse_memory("25%").of(8 << 30) == 2 << 30
    assert parse_memory("2GiB") == Memory(bytes=2 << 30)
    assert parse_memory("2GiB").of(8 << 30) == 2 << 30


@pytest.mark.parametrize(("text", "ppm"), [("2.5", 2_500_000), ("250%", 2_500_000), ("0", 0)])
def test_a_share_of_several_devices(text: str, ppm: int) -> None:
    assert parse_total_share(text) == ppm


def test_what_is_no_number_of_devices() -> None:
    for text in ("many", "-1", "1e3", "1" * 30):
        with pytest.raises(UnitError, match="is not a number of devices"):
            parse_total_share(text)


def test_quantities_are_written_for_people() -> None:
    assert [format_bytes(n) for n in (0, 100, 1536, 2 << 30)] == [
        "0 B",
        "100 B",
        "1.50 KiB",
        "2 GiB",
    ]
    assert [format_share(n) for n in (0, 125_000, 1_000_000)] == ["0%", "12.5%", "100%"]
    measured = (0, 24_987, 99_400, 901_982, 1_000_000)
    assert [format_part(n) for n in measured] == ["0%", "2.5%", "9.9%", "90%", "100%"]
    assert [format_seconds(s) for s in (2, 0.0015, 2e-6, 5e-9)] == [
        "2.0 s",
        "1.5 ms",
        "2.0 us",
        "5 ns",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", TcpEndpoint("localhost", 7700)),
        ("gpu-node:1", TcpEndpoint("gpu-node", 1)),
        ("tcp:10.0.0.1:80", TcpEndpoint("10.0.0.1", 80)),
        ("[::1]:7700", TcpEndpoint("::1", 7700)),
        ("[fe80::1%eth0]", TcpEndpoint("fe80::1%eth0", 7700)),
        ("unix:/run/rgpu.sock", UnixEndpoint("/run/rgpu.sock")),
        ("grpc:gpu:7701", GrpcEndpoint("gpu", 7701)),
        ("grpc:[::1]", GrpcEndpoint("::1", 80)),
        ("grpcs:gpu.example.org", GrpcEndpoint("gpu.example.org", 443, True)),
    ],
)
def test_endpoints(text: str, expected: object) -> None:
    endpoint = parse_endpoint(text)
    assert endpoint == expected
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    ["", ":1", "a b", "::1", "host:port", "host:-1", "unix:", "unix:x", "unix:/" + "x" * 200],
)
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(EndpointError):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.5", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("gpu", False)],
)
def test_what_only_this_machine_can_reach(host: str, loopback: bool) -> None:
    assert TcpEndpoint(host, 1).loopback is loopback


def test_what_comes_through_a_proxy_may_come_from_anywhere() -> None:
    assert not parse_endpoint("grpc:127.0.0.1:7701").loopback


@pytest.mark.parametrize(
    ("where", "error", "sentence"),
    [
        (
            "127.0.0.1:7811",
            OSError(errno.EADDRINUSE, "Address already in use"),
            "Address already in use; end what listens there, or name another address with --listen",
        ),
        (
            "192.0.2.1:1",
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "Cannot assign requested address; name an address of this machine with --listen",
        ),
        (
            "unix:/no/x",
            OSError(errno.ENOENT, "No such file or directory"),
            "No such file or directory; name a path in a folder that exists with --listen",
        ),
        ("tls:a:1", OSError("odd"), "odd; name another address with --listen"),
    ],
)
def test_where_nobody_can_listen(where: str, error: OSError, sentence: str) -> None:
    assert (
        str(cannot_listen(parse_endpoint(where), error)) == f"cannot listen on {where}: {sentence}"
    )


def test_clocks_do_not_go_back() -> None:
    clock = FakeClock(5.0)
    assert clock.advance(2.5) == clock.now() == 7.5
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
    real = MonotonicClock()
    assert real.now() <= real.now()


def test_settings_become_the_variables_that_the_library_reads() -> None:
    settings = ClientSettings("tcp:gpu:1", "2GiB", 3, "40%", 0.7, tenant="alice", lease="job")
    assert settings.variables() == {
        "RGPU_SERVER": "gpu:1",
        "RGPU_MEMORY": str(2 << 30),
        "RGPU_DEVICE": "3",
        "RGPU_SHARE": "0.4",
        "RGPU_LIMIT": "0.7",
        "RGPU_TENANT": "alice",
        "RGPU_LEASE": "job",
    }
    assert ClientSettings().variables() == {}
    shares = ClientSettings(memory="25 %", share=1e-05, policy="burst", priority=7, weight=3)
    assert shares.variables() == {
        "RGPU_MEMORY": "25%",
        "RGPU_SHARE": "0.00001",
        "RGPU_POLICY": "burst",
        "RGPU_PRIORITY": "7",
        "RGPU_WEIGHT": "3",
    }


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"server": "a b"}, "'a b' is not an address"),
        ({"memory": "much"}, "--memory: 'much' is not a number of bytes"),
        ({"memory": "much"}, "or 8vmem (units of 256 MiB), or a percentage such as 25%"),
        ({"memory": "0"}, "memory 0 makes no sense"),
        ({"device": -1}, "'-1' is not a device"),
        ({"memory": "0%"}, "memory 0 makes no sense"),
        ({"share": "2"}, "'2' is not a share"),
        ({"policy": "greedy"}, "'greedy' is not a policy: write none, fixed, burst, best-effort"),
        ({"priority": 101}, "a priority is a whole number from 0 to 100, not 101"),
        ({"weight": 0}, "a weight is a whole number from 1 to 1000, not 0"),
        ({"share": "0.8", "limit": "0.5"}, "the share 80% is above its limit 50%"),
        ({"lease": ""}, "--lease: a name is 1 to 256 printable characters"),
        ({"device": True}, "'True' is not a device"),
        ({"device": 1024}, "'1024' is not a device"),
        ({"memory": 1.5}, "'1.5' is not a whole number of bytes"),
        ({"memory": True}, "'True' is not a number of bytes"),
        ({"share": True}, "'True' is not a share"),
        ({"limit": "0"}, "limit 0 makes no sense"),
        ({"server": 7700}, "7700 is not a text"),
        ({"tenant": b"a"}, "b'a' is not a text"),
        ({"tenant": "a\nb"}, "--tenant: a name is 1 to 256 printable characters"),
    ],
)
def test_settings_that_make_no_sense(fields: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        ClientSettings(**fields).variables()  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_the_environment_of_a_client() -> None:
    before = {"LD_LIBRARY_PATH": "/a:/lib:/b:", "RGPU_SERVER": "x:1", "CUPY_COMPILE_WITH_PTX": "0"}
    after = client_environment(before, {"RGPU_MEMORY": "5"}, Path("/lib"))
    assert after == {
        "LD_LIBRARY_PATH": "/lib:/a:/b",
        "RGPU_SERVER": "x:1",
        "RGPU_MEMORY": "5",
        "CUPY_COMPILE_WITH_PTX": "0",
    }
    assert client_environment({}, {}, Path("/lib"))["RGPU_SERVER"] == "127.0.0.1:7700"


def test_hiding_nvjitlink() -> None:
    def preloaded(**before: str) -> str | None:
        return client_environment(before, {}, Path("/lib")).get("LD_PRELOAD")

    ours = "/lib/no_nvjitlink/libnvJitLink.so.12:/lib/no_nvjitlink/libnvJitLink.so.13"
    assert preloaded(LD_PRELOAD="/a.so") == "/a.so"
    assert preloaded(RGPU_HIDE_NVJITLINK="0") is None
    assert preloaded(RGPU_HIDE_NVJITLINK="1") == ours
    assert preloaded(RGPU_HIDE_NVJITLINK="1", LD_PRELOAD=f"/a.so {ours}") == f"{ours}:/a.so"
    with pytest.raises(UsageError, match="RGPU_HIDE_NVJITLINK is 1 to hide"):
        preloaded(RGPU_HIDE_NVJITLINK="yes")


def test_which_server() -> None:
    assert configured_server(None, {}) == TcpEndpoint("127.0.0.1", 7700)
    assert configured_server(None, {"RGPU_SERVER": "a:1"}) == TcpEndpoint("a", 1)
    assert configured_server("b:2", {"RGPU_SERVER": "a:1"}) == TcpEndpoint("b", 2)


def test_a_trace_is_shown_with_the_longest_first() -> None:
    text = "cuInit\t1\t0\t1000\ncuMemcpyHtoD_v2\t4\t4096\t3000\n#commands\t96\twrites\t2\n"
    lines = format_trace(parse_trace(text)).splitlines()
    assert lines[0].split() == ["CUDA", "call", "calls", "bytes", "time", "each", "part"]
    assert lines[1].split() == [
        "cuMemcpyHtoD_v2",
        "4",
        "4",
        "KiB",
        "3.0",
        "us",
        "750",
        "ns",
        "75.0",
        "%",
    ]
    assert lines[-2:] == ["5 calls in 4.0 us", "96 commands in 2 writes, 48.0 per write"]


@pytest.mark.parametrize(
    "line", ["cuInit\t1\t2", "cuInit\tone\t0\t0", "#commands\tx", "#commands\t1\tw"]
)
def test_a_trace_that_makes_no_sense(line: str) -> None:
    with pytest.raises(ProtocolError, match="line 2 of the trace"):
        parse_trace(f"cuInit\t1\t0\t0\n{line}\n")


def test_tables_align() -> None:
    assert table(("name", "n>"), [("a", "1"), ("long", "22")]) == "name   n\na      1\nlong  22"


def test_a_source_folder_that_hides_the_installed_package_is_named(tmp_path: Path) -> None:
    for package in ("rgpu_client", "rgpu_common"):
        source = Path(__file__).parents[2] / package
        (tmp_path / package).symlink_to(source, target_is_directory=True)
    ask = "import rgpu_client; print(rgpu_client.library_path())"

    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith(
        "rgpu_client/lib/libcuda.so.1 is not here: Python was started in the source folder, which "
        "hides the installed package; start it in another folder"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd="/", capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip(), "libcuda.so.1").is_file()


def test_a_narrow_terminal_misses_columns_in_their_order() -> None:
    titles, rows = ("name", "used>", "peak>", "why"), [("a", "1 MiB", "2 MiB", "because")]
    assert fitting(titles, rows, ("peak", "used"), None) == table(titles, rows)
    assert fitting(titles, rows, ("peak", "used"), 27) == table(titles, rows)
    assert fitting(titles, rows, ("peak", "used"), 26) == "name   used  why\na     1 MiB  because"
    assert fitting(titles, rows, ("peak", "used"), 15) == "name  why\na     because"
    assert fitting(titles, rows, ("peak", "used"), 3) == "name  why\na     because"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/python3.11", "-u", "-X", "dev", "/home/a/train.py", "--token=x"], "python3.11 train.py"),
        (["python", "-m", "trainer.main", "secret"], "python -m trainer.main"),
        (["python", "-c", "import secret"], "python -c"),
        (["python3"], "python3"),
        (["python", "-m"], "python"),
        (["./saxpy", "secret"], "saxpy"),
        (["pythonic", "secret"], "pythonic"),
        ([], "python"),
    ],
)  # fmt: skip
def test_a_program_is_called_without_its_arguments(words: list[str], name: str) -> None:
    """As in rgpu_client/shim/tests/test_settings.cc: both go to the server's lists and logs."""
    assert program_name(words) == name


# tests/native/address_test.cc reads the same list.
@pytest.mark.parametrize("text", [*SECRET_ADDRESSES, "alice:s3cr3t@gpu1:7700\n"])
def test_a_secret_in_an_address_is_not_repeated(text: str) -> None:
    for parse, address in (
        (parse_endpoint, text),
        (parse_device, text),
        (parse_device, f"0@{text}"),
        (check_others, {"RGPU_PATHS": text}),
    ):
        with pytest.raises(UsageError, match="RGPU_TOKEN_FILE") as caught:
            parse(address)  # type: ignore[operator]
        assert "s3cr3t" not in str(caught.value)


def test_an_address_that_takes_long_to_read_is_refused() -> None:
    refuse_secret("g" * 16_384)
    with pytest.raises(UsageError, match="at most 16,384 characters"):
        refuse_secret("g" * 16_385)


@pytest.mark.parametrize("text", PLAIN_ADDRESSES)
def test_an_address_without_a_secret_is_not_taken_for_one(text: str) -> None:
    refuse_secret(text)
    refuse_secret(f"unix:/run/{text.replace(':', '/')}")
