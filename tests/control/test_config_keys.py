"""The table of keys: the reference page, the command line's help and the reader follow it."""

from __future__ import annotations

import argparse
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from rgpu_cluster.manager.config import ManagerConfig
from rgpu_common.config import read_toml
from rgpu_common.errors import UsageError
from rgpu_common.help_pages import plain_words
from rgpu_common.key_kinds import File
from rgpu_common.keys import fill, keys_of
from rgpu_common.pages import rewrite
from rgpu_server.cli import serve
from rgpu_server.config import ServerConfig
from rgpu_server.config_kinds import Cgroup
from rgpu_server.config_page import replaced, section
from rgpu_server.config_reader import load_config
from rgpu_server.core.policy import Policy, TenantPolicy

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/server.md"
ROWS = list(keys_of(ServerConfig))
TENANT_ROWS = list(keys_of(TenantPolicy))
OPTIONS = [row.option for row in ROWS if row.option]
# What the server decides by itself.
NO_KEYS = {
    "slots", "keep_place_seconds", "max_claims", "max_waiting", "max_wait_seconds",
    "max_ttl_seconds", "max_starting", "max_start_failures", "first_back_off_seconds",
    "max_back_off_seconds", "member",
}  # fmt: skip


def test_the_page_is_what_the_table_of_keys_says() -> None:
    page = PAGE.read_text()
    assert replaced(page) == page, "run `make gen`"


def test_every_key_has_a_row_in_the_page() -> None:
    named = [line.split("`")[1] for line in section().splitlines() if line.startswith("| `")]
    assert len(named) == len(set(named))
    expected = {row.name for row in ROWS} - {"tenants", "pools"} | {"pools.NAME"}
    assert set(named) == expected | {f"tenants.NAME.{row.name}" for row in TENANT_ROWS}


def test_the_page_is_written_where_its_section_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n## Configuration file\n\nold\n\n## B\n")
    assert rewrite([str(page)], replaced) == 0
    assert page.read_text() == f"# A\n\n{section()}\n## B\n"
    with pytest.raises(ValueError, match="no section"):
        replaced("# A\n")


@pytest.mark.parametrize("of", [ServerConfig, ManagerConfig])
def test_a_relative_path_in_a_file_leads_from_the_file(of: type, tmp_path: Path) -> None:
    rows = [row for row in keys_of(of) if isinstance(row.kind, (File, Cgroup))]
    assert len(rows) >= 8
    path = tmp_path / "rgpu.toml"
    path.write_text("".join(f"{row.name} = 'sub/x'\n" for row in rows))
    filled = _texts(fill(of, read_toml(path)))
    assert filled.count(str(tmp_path / "sub" / "x")) == len(rows)
    path.write_text("".join(f"{row.name} = '~/x'\n" for row in rows))
    assert _texts(fill(of, read_toml(path))).count(str(Path("~/x").expanduser())) == len(rows)
    # An option of the command line leads from the working folder.
    for row in rows:
        if row.option is not None:
            assert row.kind.said(row.option, "x") == str(Path("x").absolute())


def _texts(config: object) -> list[str]:
    """Returns the texts of all fields of a dataclass and of its parts."""
    found: list[str] = []
    for one in fields(config):  # type: ignore[arg-type]
        value = getattr(config, one.name)
        found += _texts(value) if is_dataclass(value) else [value] if isinstance(value, str) else []
    return found


@pytest.mark.parametrize("word", ["auto", "off"])
def test_the_words_of_a_cgroup_are_no_paths(word: str, tmp_path: Path) -> None:
    path = tmp_path / "rgpu.toml"
    path.write_text(f"[workers]\ncgroup = '{word}'\n")
    assert word in _texts(load_config(path, {}))


def test_every_key_says_in_a_sentence_what_it_means() -> None:
    for row in [*ROWS, *TENANT_ROWS]:
        said = plain_words(row.meaning)
        assert said[0].isupper() or said[0] == "`", row.name
        assert said.endswith("."), row.name
        assert row.kind.accepted


def test_every_field_is_a_key_or_known_to_be_none() -> None:
    keyless = {one.name for one in fields(Policy) if not one.metadata}
    assert keyless == NO_KEYS
    assert not [one.name for one in fields(TenantPolicy) if not one.metadata]
    assert not [one.name for one in fields(ServerConfig) if not one.metadata]


def test_the_options_of_serve_come_from_the_table() -> None:
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    usage = PAGE.read_text().split("`")[1]
    for option in OPTIONS:
        assert option.flag in parser.format_help()
        assert f"[{option.flag}{' ' + option.metavar if option.metavar else ''}]" in usage
    said = vars(parser.parse_args(["--no-socket", "--listen", "a:1", "--listen", "b:2"]))
    assert (said["server.socket"], said["listen"]) == (False, ["a:1", "b:2"])
    assert said["insecure"] is None


def test_a_value_that_the_command_line_replaces_must_have_its_type(tmp_path: Path) -> None:
    path = tmp_path / "rgpu.toml"
    path.write_text("listen = ['a:b']\n")
    assert str(load_config(path, {"listen": ["127.0.0.1:0"]}).listen[0]) == "127.0.0.1:0"
    path.write_text("listen = 7700\n")
    with pytest.raises(UsageError, match="listen is 7700, which is not a list of strings"):
        load_config(path, {"listen": ["127.0.0.1:0"]})


@pytest.mark.parametrize("row", [row for row in ROWS if "." in row.name], ids=lambda row: row.name)
def test_a_value_of_a_wrong_type_is_refused_by_name(row, tmp_path: Path) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    path = tmp_path / "rgpu.toml"
    name = row.name.partition(".")[2]
    path.write_text(f"[{row.table}]\n{name} = [[1]]\n")
    with pytest.raises(UsageError, match=rf"{row.name} is \[\[1\]\], which is not "):
        load_config(path, {})


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"listen": ["x:y"]}, "'x:y' is not an address"),
        ({"devices": ["x"]}, "'x' is not a device: write emulated"),
        ({"isolation.allow_weak": "own-user, x"}, "--allow-weak-isolation: 'x' is no measure"),
        ({"metrics.listen": "127.0.0.1"}, "metrics: '127.0.0.1' is not HOST:PORT"),
    ],
)
def test_an_option_that_is_wrong_is_said_in_a_sentence(
    said: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(None, said)
    assert sentence in str(caught.value)


def test_metrics_may_be_an_address_or_a_table(tmp_path: Path) -> None:
    path = tmp_path / "rgpu.toml"
    for text in ("metrics = '127.0.0.1:1'", "[metrics]\nlisten = '127.0.0.1:1'"):
        path.write_text(text)
        assert str(load_config(path, {}).metrics) == "127.0.0.1:1"
    path.write_text("metrics = 5")
    with pytest.raises(UsageError, match="metrics is 5, which is not a string"):
        load_config(path, {})
