"""The tokens file and `rgpu token`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rgpu_common.command import main
from rgpu_common.credentials import call_metadata, configured_access_token
from rgpu_common.errors import ConfigError, UsageError
from rgpu_server.identity import cli
from rgpu_server.identity.access_tokens import (
    AccessTokens,
    changing,
    make_access_token,
    read_access_tokens,
    write_access_tokens,
)

NOW = 1_800_000_000.0


def command(path: Path, *words: str) -> int:
    return main(["token", words[0], "--tokens", str(path), *words[1:]])


def secret_of(access_token: str) -> str:
    # It may have underscores of its own.
    return access_token.split("_", 2)[2]


def test_an_access_token_is_printed_once_and_only_its_hash_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made" / "tokens.toml"
    assert command(path, "new", 'team "A" \u00e4') == 0
    printed = capsys.readouterr()
    access_token = printed.out.strip()
    assert access_token not in printed.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret_of(access_token) not in path.read_text()
    row = AccessTokens(path).row_of(access_token, NOW)
    assert row is not None
    assert row.tenant == 'team "A" \u00e4'
    assert repr(row.digest) not in repr(row)


def test_a_new_access_token_says_which_server_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens.toml"
    assert command(path, "new", "alice") == 0
    said = capsys.readouterr().err
    assert f"rgpu serve --listen 0.0.0.0:7700 --tokens {path}\n" in said
    assert "put it into a file there and set RGPU_TOKEN_FILE=FILE" in said
    monkeypatch.setattr(cli, "default_tokens_file", lambda: path)
    assert main(["token", "new", "alice"]) == 0
    assert f" --tokens {path} (or without the option)\n" in capsys.readouterr().err


@pytest.mark.parametrize("tenant", ["nodes", "nodes:gpu1"])
def test_an_access_token_of_servers_is_for_a_manager(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tenant: str
) -> None:
    path, file = tmp_path / "tokens.toml", tmp_path / "nodes.token"
    assert command(path, "new", tenant, "--file", str(file)) == 0
    said = capsys.readouterr().err
    assert f"rgpu manager --listen 0.0.0.0:7710 --tokens {path}\n" in said
    assert f"start it by rgpu serve --join MANAGER --join-token {file}\n" in said


def test_a_configuration_file_names_the_tokens_file_beside_it(tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text("[identity]\ntokens = 'tokens.toml'\n")
    assert main(["token", "new", "alice", "--config", str(config)]) == 0
    assert len(read_access_tokens(tmp_path / "tokens.toml")) == 1


def test_an_access_token_goes_to_a_file_that_was_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "tokens.toml", tmp_path / "alice.token"
    assert command(path, "new", "alice", "--file", str(file), "--expires", "12h") == 0
    assert capsys.readouterr().out == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    access_token = configured_access_token({"RGPU_TOKEN_FILE": str(file)})
    (row,) = read_access_tokens(path)
    assert row.expires is not None
    access_tokens = AccessTokens(path)
    assert access_tokens.row_of(access_token, row.expires - 1) == row
    assert access_tokens.row_of(access_token, row.expires) is None
    assert command(path, "new", "alice", "--file", str(file)) == 1
    assert "exists already and is not overwritten: name another file" in capsys.readouterr().err
    assert len(read_access_tokens(path)) == 1


def test_access_tokens_are_listed_and_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokens.toml"
    for tenant in ("alice", "bob", "bob"):
        assert command(path, "new", tenant) == 0
    alice, bob, other = capsys.readouterr().out.split()
    access_tokens = AccessTokens(path)
    assert [r.tenant for r in (access_tokens.row_of(t, NOW) for t in (alice, bob, other)) if r] == [
        "alice", "bob", "bob",
    ]  # fmt: skip
    assert command(path, "list") == 0
    listed = capsys.readouterr().out
    assert listed.count("bob") == 2
    assert command(path, "revoke", alice.split("_")[1]) == 0
    assert access_tokens.row_of(alice, NOW) is None
    assert access_tokens.row_of(bob, NOW) is not None
    assert command(path, "revoke", "--tenant", "bob") == 0
    assert access_tokens.row_of(bob, NOW) is None
    assert command(path, "revoke", "--tenant", "bob") == 1
    assert command(path, "revoke") == 2
    printed = listed + "".join(capsys.readouterr())
    for access_token in (alice, bob, other):
        assert secret_of(access_token) not in printed


def test_what_cannot_be_read_lets_nobody_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.toml"
    access_token, row = make_access_token("alice", NOW)
    write_access_tokens(path, [row])
    access_tokens = AccessTokens(path)
    assert access_tokens.row_of(access_token, NOW) == row
    good = path.read_text()
    path.write_text("[[token]]\nid = 3\n")
    assert access_tokens.row_of(access_token, NOW) is None
    assert "no access token is valid until this is corrected" in caplog.text
    path.write_text(good)
    assert access_tokens.row_of(access_token, NOW) == row
    path.unlink()
    assert access_tokens.row_of(access_token, NOW) is None
    write_access_tokens(path, [row])
    assert access_tokens.row_of(access_token, NOW) == row
    os.chmod(path, 0o620)
    assert access_tokens.row_of(access_token, NOW) is None
    assert access_token not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "[[token]]",
        "[[token]]\nid='0123456789ab'\ntenant='a'\nsha256='00'",
        "[[token]]\nid='x'\ntenant='a'\nsha256='" + "0" * 64 + "'",
        "[[token]]\nid='0123456789ab'\ntenant='*'\nsha256='" + "0" * 64 + "'",
        "[[token]]\nid='0123456789ab'\ntenant='a'\nsha256='" + "0" * 64 + "'\nmade='today'",
        "token = 3",
        "other = 1",
        "not toml",
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        read_access_tokens(path)


@pytest.mark.parametrize("tenant", ["", "*", "a\nb", "x" * 257])
def test_bad_tenants(tenant: str) -> None:
    with pytest.raises(UsageError):
        make_access_token(tenant, NOW)


def test_wrong_access_tokens_are_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    access_token, row = make_access_token("alice", NOW)
    write_access_tokens(path, [row])
    access_tokens = AccessTokens(path)
    other, _ = make_access_token("alice", NOW)
    swapped = "_".join([*access_token.split("_")[:2], other.split("_", 2)[2]])
    for wrong in (
        swapped,
        other,
        access_token[:-1],
        access_token + "x",
        access_token.upper(),
        "",
        "\ud800",
        "x" * 8192,
    ):
        assert access_tokens.row_of(wrong, NOW) is None


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    for number in range(5):
        with changing(path) as rows:
            rows.append(make_access_token(f"t{number}", NOW)[1])
    assert [row.tenant for row in read_access_tokens(path)] == [f"t{n}" for n in range(5)]
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".toml")] == ["tokens.toml"]


def test_the_clients_access_token(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("secret\r\n")
    assert (
        configured_access_token({"RGPU_TOKEN": "secret ", "RGPU_TOKEN_FILE": str(file)}) == "secret"
    )
    with pytest.raises(UsageError, match="hold different access tokens: unset the variable") as two:
        configured_access_token({"RGPU_TOKEN": "first", "RGPU_TOKEN_FILE": str(file)})
    assert "first" not in str(two.value)
    assert configured_access_token({"RGPU_TOKEN_FILE": str(file)}) == "secret"
    assert configured_access_token({}) == ""
    assert call_metadata({}) == ()
    assert call_metadata({"RGPU_TOKEN": "x"}) == (("authorization", "Bearer x"),)
    with pytest.raises(UsageError, match="No such file"):
        configured_access_token({"RGPU_TOKEN_FILE": str(tmp_path / "none")})
    file.write_text("\nsecret\n")
    with pytest.raises(UsageError, match="holds no access token in its first line"):
        configured_access_token({"RGPU_TOKEN_FILE": str(file)})
    for bad in ("tok\nen", "t\u00f6ken", "x" * 8193):
        with pytest.raises(UsageError) as error:
            configured_access_token({"RGPU_TOKEN": bad})
        assert bad not in str(error.value)
