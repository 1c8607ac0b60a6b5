"""MIG slices: how a server finds them, what it serves, and how it describes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import run_rgpu_plain
from helpers.needs import needs
from helpers.server import Server
from msgspec.structs import replace

from rgpu_common.errors import DeviceError, UsageError
from rgpu_common.mig import bare_name, check_profile, part_of, slices_of
from rgpu_common.units import PPM
from rgpu_server.config_kinds import DeviceSpec, parse_devices
from rgpu_server.default_devices import Machine, choose_devices
from rgpu_server.slices import Gpu, Hardware, Slice, device_words, hardware_of
from rgpu_server.workers.binary import emulated_library

GIB = 1 << 30
SEVENTH = PPM // 7
UUIDS = [f"MIG-{c * 8}-{c * 4}-{c * 4}-{c * 4}-{c * 12}" for c in "345"]
WHOLE = Gpu("GPU-11111111-1111-1111-1111-111111111111")
CARVED = Gpu(
    "GPU-22222222-2222-2222-2222-222222222222",
    carved=True,
    slices=(
        Slice(UUIDS[0], "1g.10gb", SEVENTH),
        Slice(UUIDS[1], "2g.20gb", 2 * PPM // 7),
        Slice(UUIDS[2], "1c.3g.40gb", SEVENTH),
    ),
)
LOOK = "from rgpu_server.slices import look_at_gpus; print(repr(look_at_gpus()))"
PLACE = "import sys; from rgpu_server.agent.location import _bus_of; print(_bus_of(sys.argv[1]))"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a management library, which the real nvidia-ml-py loads."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parents[1] / "helpers" / "fake_nvml.c"
    compiler = os.environ.get("CC", "cc")
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o",
         str(folder / "libnvidia-ml.so.1")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def asked(library: Path, source: str, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source, *words],
        env={**os.environ, "LD_LIBRARY_PATH": str(library), **environment},
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs("nvidia-ml-py")
def test_the_slices_of_a_machine_are_found(library: Path) -> None:
    assert asked(library, LOOK) == repr((WHOLE, CARVED))
    assert asked(library, LOOK, FAKE_MIG="empty") == repr((WHOLE, replace(CARVED, slices=())))
    plain = replace(CARVED, carved=False, slices=())
    assert asked(library, LOOK, FAKE_MIG="off") == repr((WHOLE, plain))


@needs("nvidia-ml-py")
def test_a_slice_lies_where_its_gpu_lies(library: Path) -> None:
    assert asked(library, PLACE, WHOLE.uuid) == "00000000:3B:00.0"
    assert asked(library, PLACE, UUIDS[1]) == "00000000:5E:00.0"
    assert asked(library, PLACE, "MIG-unknown") == ""


def test_each_slice_is_a_device_and_its_gpu_is_none() -> None:
    words = device_words([WHOLE, CARVED])
    assert words == ("cuda:0", *(f"cuda:{uuid}" for uuid in UUIDS))
    chosen = choose_devices(Machine(1, "", 2, has_compiler=True, gpus=(WHOLE, CARVED)))
    assert chosen.devices == words
    assert chosen.why == "no device is named, so what is served is the 4 GPUs and MIG slices here"
    many = choose_devices(Machine(1, "", 20, has_compiler=True, gpus=(WHOLE, *[CARVED] * 30)))
    assert len(many.devices) == 64
    assert "64 of 91 GPUs and MIG slices" in many.why


def test_a_gpu_without_slices_is_not_replaced_in_silence() -> None:
    bare = replace(CARVED, slices=())
    with pytest.raises(DeviceError, match="make slices with `nvidia-smi mig`"):
        choose_devices(Machine(0, "cuInit gave 100", 1, has_compiler=True, gpus=(bare,)))


def test_a_worker_sees_its_slice_only() -> None:
    assert hardware_of([WHOLE, CARVED], 0, UUIDS[1]) == Hardware(0, UUIDS[1], CARVED.slices[1])
    # Beside a GPU in MIG mode the driver would number the others differently.
    assert hardware_of([WHOLE, CARVED], 0, "") == Hardware(0, WHOLE.uuid)
    assert hardware_of([WHOLE, replace(CARVED, carved=False)], 1, "") == Hardware(1)
    assert hardware_of([], 3, "") == Hardware(3)


@pytest.mark.parametrize(
    ("gpus", "ordinal", "uuid", "sentence"),
    [
        ([WHOLE, CARVED], 1, "", "cuda:1 is in MIG mode, and takes programs in its slices only"),
        ([WHOLE, CARVED], 1, "", rf"--device: cuda:{UUIDS[0]} \(1g.10gb\)"),
        ([WHOLE, CARVED], 2, "", "this machine has 2 GPUs"),
        ([WHOLE], 0, UUIDS[0], "no MIG slice MIG-3.*`nvidia-smi -L` lists slices"),
        ([], 0, UUIDS[0], "no MIG slice"),
        ([CARVED], 0, UUIDS[0].replace("3", "9"), f"--device: cuda:{UUIDS[0]}"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    gpus: list[Gpu], ordinal: int, uuid: str, sentence: str
) -> None:
    with pytest.raises(DeviceError, match=sentence):
        hardware_of(gpus, ordinal, uuid)


def test_devices_are_read() -> None:
    assert parse_devices(("emulated:10GiB,mig=1g.10gb", "emulated,mig=7g.80gb")) == (
        DeviceSpec("emulated", 10 * GIB, mig="1g.10gb"),
        DeviceSpec("emulated", 8 * GIB, mig="7g.80gb"),
    )
    assert parse_devices((f"cuda:{UUIDS[0]}",)) == (DeviceSpec("cuda", uuid=UUIDS[0]),)


@pytest.mark.parametrize(
    "text",
    [
        "emulated:1GiB,mig=", "emulated:1GiB,mig=9g.10gb", "emulated:1GiB,mig=1g.10gb,mig=1g.10gb",
        "emulated,pool=x", "cuda:0,mig=1g.10gb", "cuda:MIG-1", "cuda:mig", "cuda:MIG-" + "3" * 36,
    ],
)  # fmt: skip
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a device"):
        parse_devices((text,))


def test_a_slice_is_served_once() -> None:
    with pytest.raises(UsageError, match="named twice"):
        parse_devices((f"cuda:{UUIDS[0]}", f"cuda:{UUIDS[0]}"))


def test_profiles() -> None:
    for text in ("1g.10gb", "7g.80gb", "1c.2g.20gb", "1g.10gb+me", "1g.12gb+me.all", "1g.5gb-me"):
        assert check_profile(text) == text
    for text in ("", "1g", "8g.80gb", "1g.0gb", "1g.10GB", "1g.10gb ", "1g.10gb+" + "a" * 40):
        with pytest.raises(UsageError):
            check_profile(text)
    assert [slices_of(text) for text in ("3g.40gb", "1c.3g.40gb")] == [3, 1]
    assert [part_of("1g.6gb", 4), part_of("7g.80gb"), part_of("")] == [PPM // 4, PPM, PPM]
    assert bare_name("NVIDIA H100 MIG 1g.10gb") == "NVIDIA H100"
    assert bare_name("NVIDIA H100 MIG edition") == "NVIDIA H100 MIG edition"
    assert bare_name(" MIG 1g.10gb") == " MIG 1g.10gb"


@needs("nvidia-ml-py")
def test_a_server_serves_the_slices_that_it_finds(library: Path) -> None:
    """The emulated driver stands for NVIDIA's: it shows that a worker opens what it is given."""
    driver = {"LD_LIBRARY_PATH": str(library), "RGPU_LIBCUDA": str(emulated_library())}
    words = ("--device", f"cuda:{UUIDS[2]}")
    with Server(*words, device=f"cuda:{UUIDS[0]}", **driver) as server:
        said = run_rgpu_plain("devices", "--json", "--server", server.tcp).stdout
        devices = json.loads(said)["devices"]
        assert [(one["mig"], one["uuid"]) for one in devices] == [
            ("1g.10gb", UUIDS[0]),
            ("1c.3g.40gb", UUIDS[2]),
        ]
        assert devices[0]["name"] == "rgpu emulated device MIG 1g.10gb"
        source = "cuda.open(); print(cuda.memory()[1])"
        code, output, errors = clients.run(
            server.tcp, source, RGPU_DEVICE="0,1", RGPU_LEASE="both", RGPU_MEMORY="1GiB"
        )
        assert (code, output.split()) == (0, [str(GIB)]), errors
