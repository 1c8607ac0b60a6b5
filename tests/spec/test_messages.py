"""The rows of messages: what is generated from them and committed is fresh, and rules hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cudaspec import __main__ as command
from cudaspec.gen import channels_cc, messages_cc, messages_md, messages_py
from cudaspec.load_messages import ITEMS, SIZED, channels, checked, load
from cudaspec.message import Channel, Enumeration, Fd, Message, Module, Number, Part, Record
from cudaspec.rows import SpecError

ROOT = Path(__file__).resolve().parents[2]
CODECS = messages_py.modules(load(), channels().values())
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


def _channel(*messages: Message, head: tuple[Part, ...] = ()) -> Module:
    channel = Channel("toy", "a socket", packets=not head, head=head)
    return Module("toy", "A toy.", (MOST,), messages=messages, channel=channel)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_the_python_codec_is_what_the_rows_say(name: str) -> None:
    """Formatters may break its lines in other places, so the syntax trees are compared."""
    committed = (ROOT / "rgpu_common/wire" / name).read_text()
    generated = CODECS[name]
    assert ast.dump(ast.parse(committed)) == ast.dump(ast.parse(generated)), "run `make gen`"


@pytest.mark.parametrize("path", messages_md.PAGES)
def test_the_page_is_what_the_rows_say(path: str) -> None:
    page = (ROOT / path).read_text()
    assert messages_md.replaced(path, page) == page, "run `make gen`"


@pytest.mark.parametrize("path", messages_md.PAGES)
def test_a_page_without_a_place_for_a_table_is_refused(path: str) -> None:
    with pytest.raises(SpecError, match=f"the page {path} has no place for the tables"):
        messages_md.replaced(path, "# Nothing\n")


def test_the_command_line_writes_both(tmp_path: Path) -> None:
    for path in messages_md.PAGES:
        page = tmp_path / path
        page.parent.mkdir(parents=True)
        page.write_text((ROOT / path).read_text().replace("| --", "| old |\n| --"))
    assert command.main(["--wire", str(tmp_path), "--pages", str(tmp_path)]) == 0
    for path, tables in messages_md.PAGES.items():
        for name in tables:
            assert _table(tmp_path / path, name) == _table(ROOT / path, name)
    assert (tmp_path / "hello.py").read_text() == CODECS["hello.py"]


def _table(page: Path, name: str) -> str:
    return page.read_text().partition(f"<!-- {name}: ")[2].partition("<!-- end -->")[0]


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


def _reader(text: str, owner: Message | Record) -> str:
    """Returns the generated C++ function that reads a message or record."""
    name = "".join(word.capitalize() for word in owner.name.split("_"))
    record = isinstance(owner, Record)
    head = f"bool Read{owner.name}(" if record else f"bool Get(Reader& r, {name}* m)"
    (_, rest) = text.split(head)
    return rest.split("\n}\n", 1)[0]


@pytest.mark.parametrize("name", channels())
def test_every_length_of_a_channel_is_checked_in_cpp(name: str) -> None:
    """A field or list that has a length is compared with its bound, and the reader returns at
    once.
    """
    rows = channels()[name]
    text = channels_cc.channel_cc(rows)
    for owner in (*rows.own.messages, *rows.own.records):
        sized = [part for part in owner.parts if part.kind in {*SIZED, *ITEMS, "count"}]
        reader = _reader(text, owner) if sized else ""
        for part in sized:
            if part.kind in SIZED:
                assert f"(r, &m->{part.name}, kMax" in reader
            elif part.kind == "count" or not part.counted:
                assert f"if (!r.ok() || {part.name}_count > kMax" in reader


def test_descriptors_are_counted_in_cpp() -> None:
    text = channels_cc.channel_h(channels()["worker"])
    assert "enum Fd : size_t { kLane, kGrants, kUsage, kSignal, kCompiler, kPlaces };" in text
    assert "kLeastFds = 4, kMostFds = 6;" in text


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            _channel(Message(1, "A", "x", "A."), Message(1, "B", "x", "B.")),
            "toy: two messages have one type",
        ),
        (
            _channel(Message(1, "A", "x", "A.", fds=(Fd("a", "a", optional=True), Fd("b", "b")))),
            "A: only the last descriptors can be optional",
        ),
        (_channel(head=(Part("u9 kind"),)), "toy: head: the field 'u9 kind' has the unknown kind"),
        (_rows(Part("bytes a")), "the field 'a' has no bound: set `most`"),
        (_rows(Part("string# a")), "the field 'a' has no bound: set `most`"),
        (_rows(Part("count a")), "a `count` has no list: ['a']"),
        (_rows(Part("count a", most=2), Part("u32# a", most=2)), "the list 'a' and its `count`"),
        (_rows(Part("u32# a", counted=True)), "the list 'a' and its `count` do not fit"),
        (_rows(record=(Part("zero a"),)), "Row: a record has no field 'zero a'"),
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
        (
            _rows(Part("Row[] a", most=2), record=(Part("u32 b", most=3),)),
            "readers of rows check no bounds: Row ['b']",
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
    odd = Enumeration("Odd", "u8", {"A": 1, "B": 3}, "Odd.")
    message = Message(1, "TOY", "client", "A toy.", (Part("Odd odd"),))
    with pytest.raises(SpecError, match="Odd: the values of an enumeration in a field count"):
        checked([Module("toy", "", enumerations=(odd,), messages=(message,))])
