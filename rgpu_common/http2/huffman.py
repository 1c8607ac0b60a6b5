"""The Huffman code of header texts (RFC 7541, appendix B), decoded four bits at a time."""

from __future__ import annotations

import functools
from typing import Final

from rgpu_common.errors import ProtocolError

# The code is canonical, so its lengths say everything: bits -> octets.
_OCTETS: Final = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: b"\n\r\x16",
}
_MAX_PADDING = 7

# Of a node of the code's tree: where a bit 0 and a bit 1 lead; -1 - octet: to the end of that code.
_Node = list[int]
_NOWHERE = 0  # nothing leads back to the root
# Of a node, for each nibble: the next node and what was read on the way; None: no such code.
_Step = tuple[int, bytes] | None


def decode(octets: bytes) -> bytes:
    """Returns the text; ProtocolError if it is none."""
    steps, last = _table()
    out, node = [], 0
    for octet in octets:
        for nibble in (octet >> 4, octet & 15):
            step = steps[node][nibble]
            if step is None:
                raise ProtocolError("the peer sent a header text that is none")
            node, read = step
            out.append(read)
    if node not in last:
        raise ProtocolError("the peer sent a header text that is none")
    return b"".join(out)


@functools.lru_cache(maxsize=1)
def _table() -> tuple[list[list[_Step]], frozenset[int]]:
    """The steps, and the nodes at which a text may end: after ones that are no code."""
    tree = _tree()
    last, node = {0}, 0
    for _ in range(_MAX_PADDING):
        node = tree[node][1]
        last.add(node)
    return [[_step(tree, node, nibble) for nibble in range(16)] for node in range(len(tree))], (
        frozenset(last)
    )


def _step(tree: list[_Node], node: int, nibble: int) -> _Step:
    read = bytearray()
    for shift in (3, 2, 1, 0):
        node = tree[node][nibble >> shift & 1]
        if node == _NOWHERE:
            return None
        if node < 0:
            read.append(-1 - node)
            node = 0
    return node, bytes(read)


def _tree() -> list[_Node]:
    tree: list[_Node] = [[_NOWHERE, _NOWHERE]]
    code = length = 0
    for bits, octets in _OCTETS.items():
        for octet in octets:
            code, length = code << bits - length, bits
            _plant(tree, code, bits, octet)
            code += 1
    return tree


def _plant(tree: list[_Node], code: int, bits: int, octet: int) -> None:
    node = 0
    for shift in range(bits - 1, 0, -1):
        bit = code >> shift & 1
        if tree[node][bit] == _NOWHERE:
            tree.append([_NOWHERE, _NOWHERE])
            tree[node][bit] = len(tree) - 1
        node = tree[node][bit]
    tree[node][code & 1] = -1 - octet
