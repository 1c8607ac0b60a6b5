"""The devices that `rgpu serve` offers when none is named: the pure decision, and the look at the
machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rgpu_common.errors import DeviceError, MissingPartError
from rgpu_common.installing import install_words
from rgpu_server.config_reader import load_config
from rgpu_server.default_devices import MOST_GPUS, Machine, choose_devices, choose_gpus

NO_DRIVER = "NVIDIA's driver library libcuda.so.1 was not found"
WITHOUT_LLVMLITE = """
import sys
sys.modules["llvmlite"] = None
from rgpu_common.command import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_gpus_that_are_there_are_served() -> None:
    chosen = choose_devices(Machine(2, "", 2, has_compiler=False))
    assert chosen.devices == ("cuda:0", "cuda:1")
    assert chosen.why == "no device is named, so what is served is the 2 GPUs here"
    many = choose_devices(Machine(100, "", 100, has_compiler=True))
    assert len(many.devices) == MOST_GPUS


def test_without_a_gpu_the_emulated_device_is_served() -> None:
    chosen = choose_devices(Machine(0, NO_DRIVER, 0, has_compiler=True))
    assert chosen.devices == ("emulated",)
    assert NO_DRIVER in chosen.why


def test_a_gpu_that_cannot_be_used_is_not_replaced_in_silence() -> None:
    with pytest.raises(DeviceError, match="has 1 GPU, and NVIDIA's driver cannot use it: cuInit"):
        choose_devices(Machine(0, "cuInit gave 999", 1, has_compiler=True))


def test_without_llvmlite_the_extra_is_named() -> None:
    with pytest.raises(MissingPartError) as refused:
        choose_devices(Machine(0, NO_DRIVER, 0, has_compiler=False))
    assert install_words("server,emu") in str(refused.value)


def test_cuda_is_every_gpu_and_never_an_emulated_device() -> None:
    assert choose_gpus(Machine(2, "", 2, has_compiler=True)).devices == ("cuda:0", "cuda:1")
    with pytest.raises(DeviceError, match="`cuda` asks for the GPUs of this machine, and there is"):
        choose_gpus(Machine(0, NO_DRIVER, 0, has_compiler=True))
    with pytest.raises(DeviceError, match="has 1 GPU, and NVIDIA's driver cannot use it: cuInit"):
        choose_gpus(Machine(0, "cuInit gave 999", 1, has_compiler=True))


def test_cuda_stands_for_the_gpus_among_other_devices() -> None:
    def never() -> tuple[str, ...]:
        raise AssertionError("nobody has to look")

    named = {"devices": ["emulated:1GiB", "cuda"]}
    found = load_config(None, named, never, lambda: ("cuda:0", "cuda:1")).devices
    assert [str(one) for one in found] == ["emulated:1GiB", "cuda:0", "cuda:1"]
    (kept,) = load_config(None, {"devices": ["cuda"]}, never, lambda: ("cuda",)).devices
    assert str(kept) == "cuda", "where nobody looks, as with --check-config"


def test_devices_that_are_named_are_taken(tmp_path: Path) -> None:
    def never() -> tuple[str, ...]:
        raise AssertionError("nobody has to look")

    file = tmp_path / "rgpu.toml"
    file.write_text('devices = ["emulated:1GiB"]')
    assert load_config(file, {}, never).devices[0].memory_bytes == 1 << 30
    assert load_config(None, {"devices": ["cuda:3"]}, never).devices[0].ordinal == 3
    found = load_config(None, {}, lambda: ("cuda:0", "cuda:1")).devices
    assert [(one.kind, one.ordinal) for one in found] == [("cuda", 0), ("cuda", 1)]


@pytest.mark.parametrize("named", [(), ("--device", "emulated")])
def test_a_server_without_llvmlite_does_not_start(named: tuple[str, ...]) -> None:
    """With it the emulated device would start, and fail with the first kernel."""
    command = [sys.executable, "-c", WITHOUT_LLVMLITE, "serve", "--listen", "127.0.0.1:0", *named]
    ended = subprocess.run(
        command, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("rgpu: ")]
    assert f"needs llvmlite: {install_words('server,emu')}" in said
