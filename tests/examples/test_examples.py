"""Each program of `examples/` on the emulated device. The programs check their own results; the
tests compare what they print and draw with values that are known from elsewhere.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.figures import figures
from helpers.needs import cuda_headers, needs
from helpers.pages import DOCS
from helpers.server import Server, run_client
from helpers.tutorial import blocks_of

import rgpu_client

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:2GiB") as running:
        yield running


def run(server: Server, *command: str) -> str:
    done = run_client(server.unix, *command, options=("--memory", "512MiB"), timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    return done.stdout


def python(server: Server, program: str, *words: str) -> str:
    return run(server, sys.executable, "-W", "ignore", str(EXAMPLES / program), *words)


def test_pricing(server: Server) -> None:
    said = python(server, "pricing/price.py", "512", "16")
    assert "8,192 pairs of paths on rgpu emulated device" in said
    row = re.compile(r"(\w+) call +([0-9.]+) \+- ([0-9.]+) +formula +([0-9.]+) +right")
    found = {name: [float(value) for value in values] for name, *values in row.findall(said)}
    # The formulas' values, as other programs give them.
    assert found["European"][2] == 9.1218
    assert found["Asian"][2] == 4.3092
    for price, error, formula in found.values():
        assert 0 < error < 0.15
        assert abs(price - formula) <= 4 * error + 1e-4


@needs("libx11")  # for Taichi
def test_filters(server: Server, tmp_path: Path) -> None:
    picture = tmp_path / "filters.png"
    said = python(server, "filters/filters.py", "48", str(picture))
    assert said.count(": right") == 3
    away = {name: float(far) for name, far in re.findall(r"(\w+) +is ([0-9.]+) away", said)}
    assert 0.045 < away["noisy"] < 0.055
    assert away["bilateral"] < away["noisy"] / 2
    head = picture.read_bytes()[:24]
    assert (head[1:4], struct.unpack(">II", head[16:])) == (b"PNG", (4 * 48, 48))


def test_nbody(server: Server, tmp_path: Path) -> None:
    # A number of bodies that is no multiple of a block.
    picture = tmp_path / "galaxies.svg"
    said = python(server, "nbody/nbody.py", "100", "30", str(picture))
    assert "100 bodies, 30 steps on rgpu emulated device" in said
    assert said.endswith("right\n")
    bodies = ElementTree.parse(picture).getroot().findall("{*}circle")
    assert len(bodies) == 4 * 100
    assert [body.get("r") for body in bodies].count("4") == 4 * 2


def compiled_heat(folder: Path) -> str:
    program = str(folder / "heat")
    flags = (
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        f"-isystem{cuda_headers()}",
    )
    library = (f"-L{rgpu_client.library_path()}", "-l:libcuda.so.1")
    source = str(EXAMPLES / "heat/heat.cc")
    subprocess.run(["g++", *flags, source, *library, "-o", program], check=True)
    return program


@needs("cuda-headers")
def test_heat(server: Server, tmp_path: Path) -> None:
    program = compiled_heat(tmp_path)
    said = run(server, program, "40", "50")
    assert "40 x 40 points, 50 steps on rgpu emulated device" in said
    plate = said.splitlines()[1:13]
    assert plate == plate[::-1]
    assert plate[6][16] == max("".join(plate), key=" .:-=+*#%@".index) == "%"
    # (1 - 1.6 sin^2(pi / 78))^50
    assert "the middle is at 0.878204," in said
    for words, complaint in (
        (("2",), "give 3 to 16384 points, not 2\n"),
        (("40", "-1"), "give 1 to 1000000 steps, not -1\n"),
    ):
        refused = run_client(server.unix, program, *words)
        assert (refused.returncode, refused.stderr) == (2, complaint)


# A figure in a line: 262,144, 9.1218, 3e-13.
_FIGURE = r"(?<![\w.])(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)"


def check_shown(line: str, said: str) -> None:
    """Checks that a program has printed what a page shows. Roundings differ between processors."""
    words = re.split(_FIGURE, line)
    pattern = "".join(
        _FIGURE if at % 2 else re.sub(r"(?:\\ )+", r"\\s+", re.escape(word))
        for at, word in enumerate(words)
    )
    found = re.search(pattern, said)
    assert found is not None, f"{line!r} is not in:\n{said}"
    for shown, printed in zip(words[1::2], found.groups(), strict=True):
        one, other = (float(figure.replace(",", "")) for figure in (shown, printed))
        factor = 20 if 0 < max(one, other) < 1e-3 else 1.02
        assert min(one, other) * factor >= max(one, other), f"the page shows {line!r}:\n{said}"


def shown_by(program: str) -> tuple[list[str], list[str]]:
    """Returns the command that the page has for a program, behind `rgpu run --`, and the lines
    that it shows.
    """
    blocks = blocks_of((DOCS / "how-to" / "examples.md").read_text())
    (block,) = (one for one in blocks if one.script.splitlines()[-1].find(program) > 0)
    return block.script.splitlines()[-1].removeprefix("rgpu run -- ").split(), block.prints


@pytest.mark.full
@pytest.mark.parametrize(
    "program",
    [
        "pricing/price.py",
        pytest.param("filters/filters.py", marks=needs("libx11")),
        "nbody/nbody.py",
    ],
)
def test_the_page_shows_what_the_programs_print(
    server: Server, tmp_path: Path, program: str
) -> None:
    words, prints = shown_by(program)
    assert words.pop(0) == "python"
    command = [
        str(EXAMPLES.parent / word) if word.startswith("examples/")
        else str(tmp_path / word) if "." in word and not word.startswith("-") else word
        for word in words
    ]  # fmt: skip
    said = run(server, sys.executable, *command)
    assert len(prints) > 2
    for line in prints:
        check_shown(line, said)


@pytest.mark.full
@needs("cuda-headers")
def test_the_page_shows_the_plate(server: Server, tmp_path: Path) -> None:
    said = run(server, compiled_heat(tmp_path))
    words, prints = shown_by("./heat")
    assert words == ["./heat"]
    for line in prints:
        if re.search(r"\d", line):
            check_shown(line, said)
        else:  # a row of the plate; the page has no blanks at its end
            assert line in map(str.rstrip, said.splitlines())


def got_of(table: str) -> dict[str, list[int]]:
    """Returns what each tenant got, in percent, in the three parts of the run."""
    rows = [line.replace("%", " ").split() for line in table.splitlines() if "%" in line]
    return {row[0]: [int(part) for part in row[-3:]] for row in rows}


def check_tenants(got: dict[str, list[int]]) -> None:
    """Checks what the policies promise."""
    assert all(part <= 30 for part in got["studio"])
    assert got["lab"][1] <= 5
    assert got["students"][1] > 2 * got["students"][0]
    for busy in (0, 2):
        assert got["lab"][busy] > got["studio"][busy]
        assert got["lab"][busy] > got["students"][busy]


def test_the_page_shows_shares_as_the_policies_promise_them() -> None:
    check_tenants(got_of("\n".join(shown_by("share.py")[1])))


@pytest.mark.full
@pytest.mark.measures
def test_tenants(tmp_path: Path) -> None:
    picture = tmp_path / "shares.svg"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "tenants/share.py"), "--seconds", "3", "--out", str(picture)],
        cwd="/", capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the results of all programs are right" in done.stdout
    drawn = "".join(ElementTree.parse(picture).getroot().itertext())
    assert all(name in drawn for name in ("studio", "lab", "students"))
    got = got_of(done.stdout)
    assert sorted(got) == ["lab", "students", "studio"]
    with figures():
        check_tenants(got)
