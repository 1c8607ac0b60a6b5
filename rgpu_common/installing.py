"""How rgpu is installed: the one place that messages and the pages of `docs` take it from.

No release is on PyPI yet, so both name the wheel that a reader has made or was given. A release
that is there changes `_WORD` and `_PLAIN` here and the section "From a wheel" of
docs/how-to/install.md; `make gen` changes all other pages.
"""

from __future__ import annotations

# What pip takes, with extras and without. On PyPI: "'rgpu-cuda[{}]'" and "rgpu-cuda".
_WORD = '"$(echo rgpu_cuda-*.whl)[{}]"'
_PLAIN = "rgpu_cuda-*.whl"


def pip_word(extras: str = "") -> str:
    """Returns what to give pip for rgpu with these extras: "server,emu"."""
    return _WORD.format(extras) if extras else _PLAIN


def install_words(extras: str = "", *, again: bool = False) -> str:
    """Returns the command that installs rgpu with these extras, for a message. again: although it
    is installed.
    """
    checkout = f"'.[{extras}]'" if extras else "."
    pip = f"python -m pip install {'--force-reinstall ' if again else ''}"
    return f"{pip}{pip_word(extras)} (in a checkout: {pip}{checkout})"
