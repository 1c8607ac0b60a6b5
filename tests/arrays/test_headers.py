"""Which headers a kernel's source gets, and that no other file is among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgpu_server.arrays.headers import Headers

FILES = {
    "top.h": '#include "part/inner.h"\n  #  include <missing.h>\n// #include "comment.h"\n',
    "part/inner.h": '#include "beside.h"\n#include "../top.h"\nint inner;',
    "part/beside.h": "int beside;",
    "comment.h": "int comment;",
}


@pytest.fixture
def headers(tmp_path: Path) -> Headers:
    for name, text in FILES.items():
        path = tmp_path / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "secret.h").write_text("int secret;")
    return Headers([tmp_path / "no such folder", tmp_path / "include"])


def test_a_source_gets_what_it_includes_and_what_that_includes(headers: Headers) -> None:
    found = headers.of(b"#include <top.h>\nint x;")
    assert found == {
        "top.h": FILES["top.h"].encode(),
        "part/inner.h": FILES["part/inner.h"].encode(),
        "beside.h": FILES["part/beside.h"].encode(),
        "../top.h": FILES["top.h"].encode(),
    }
    assert headers.of(b"int x;") == {}


@pytest.mark.parametrize(
    "name",
    [
        "../secret.h",
        "part/../../secret.h",
        "/etc/passwd",
        "part",
        "",
        "\0",
        "a" * 300,
        "//etc/passwd",
    ],
)
def test_nothing_outside_the_folders_is_read(headers: Headers, name: str) -> None:
    assert headers.of(f'#include "{name}"\n#include <{name}>\n'.encode()) == {}
