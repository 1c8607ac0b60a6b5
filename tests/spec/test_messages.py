"""The rows of messages: what is generated from them and committed is fresh, and rules hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cudaspec import __main__ as command
from cudaspec.gen import messages_cc, messages_md, messages_py
from cudaspec.load_messages import checked, load
from cudaspec.message import Enumeration, Message, Module, Number, Part, Record
from cudaspec.rows import SpecError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/wire-format.md"
MOST = Number("MAX", 9, "a limit")


def _rows(*parts: Part, record: tuple[Part, ...] = (Part("u8 a"),), **fields: object) -> Module:
    message = Message(1, "TOY", "client", "A toy.", parts, **fields)  # type: ignore[arg-type]
    return Module(
        "toy",
        "A toy.",
        (MOST,),
        (Enumeration("Colour", "u8", {"RED": 0, "BLUE": 1}, "A colour."),),
        (Record("Row", record, "A row."),),
        (message,),
    )


@pytest.mark.parametrize("name", sorted(messages_py.modules(load())))
def test_the_python_codec_is_what_the_rows_say(name: str) -> None:
    """Formatters may break its lines in other places, so the syntax trees are compared."""
    committed = (ROOT / "rgpu_common/wire" / name).read_text()
    generated = messages_py.modules(load())[name]
    assert ast.dump(ast.parse(committed)) == ast.dump(ast.parse(generated)), "run `make gen`"


def test_the_page_is_what_the_rows_say() -> None:
    page = PAGE.read_text()
    assert messages_md.replaced(load(), page) == page, "run `make gen`"


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(SpecError, match=r"no place for the tables \['control messages'"):
        messages_md.replaced(load(), "# Nothing\n")


def test_the_command_line_writes_both(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("The application has ended", "old"))
    assert command.main(["--wire", str(tmp_path), "--wire-page", str(page)]) == 0
    assert page.read_text() == PAGE.read_text()
    assert (tmp_path / "hello.py").read_text() == messages_py.modules(load())["hello.py"]


def test_every_length_is_checked_in_cpp() -> None:
    """A field with a length is read by a function that takes its bound, and returns at once."""
    text = messages_cc.handshake_cc(load())
    for message in load().handshake:
        for part in message.parts:
            if part.kind == "text" and not message.python:
                assert f"GetText(r, &m->{part.name}, k" in text
    rows = [line for line in text.splitlines() if "GetRows(" in line]
    assert rows
    assert all("kMax" in line and "return false" in line for line in rows)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (_rows(Part("text name")), "the field 'name' has no bound: set `most`"),
        (_rows(Part("Row[] rows")), "the field 'rows' has no bound"),
        (_rows(Part("Row# rows")), "the field 'rows' has no bound"),
        (_rows(Part("bands x", most=3)), "the bound of 'x' is MAX_BANDS in every message"),
        (_rows(Part("u9 a")), "has the unknown kind 'u9'"),
        (_rows(Part("u8 A")), "the field 'u8 A' is not 'KIND NAME'"),
        (_rows(Part("u8 a"), Part("u16 a")), "two fields have one name"),
        (_rows(Part("text a", most="MAXIMUM")), "the field 'a' names no constant MAXIMUM"),
        (_rows(Part("text a", most="MAX", needs="b")), "needs 'b', no bool here"),
        (_rows(Part("wishes a", most="MAX", optional=True), Part("u8 b")), "the bound of 'a'"),
        (_rows(Part("u16[] a", most=2, optional=True), Part("u8 b")), "only the last field can"),
        (
            _rows(Part("Row[] a", most=2), record=(Part("text b", most=3),)),
            "rows of 'Row' have no fixed size; write 'Row#'",
        ),
        (_rows(Part("u8 a"), stops=("b", "a", "WIRE_MAJOR")), "stops after a field that is not"),
    ],
)
def test_a_row_that_breaks_a_rule_generates_nothing(rows: Module, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        checked([rows])
    assert sentence in str(caught.value)


def test_opcodes_and_values_count_without_gaps() -> None:
    with pytest.raises(SpecError, match="are not 1 to 1"):
        checked([Module("toy", "", messages=(Message(2, "TOY", "client", "A toy."),))])
    odd = Enumeration("Odd", "u8", {"A": 1}, "Odd.")
    with pytest.raises(SpecError, match="Odd: the values of an enumeration in a field count"):
        checked([Module("toy", "", enumerations=(odd,))])
