"""The C functions of librgpu_native.so that the tests of the wire and of the lease page call."""

from __future__ import annotations

import ctypes
import functools

from rgpu_common.parts import native_library

REFUSED = -1
UNKNOWN = -2


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The installed library, with argument and result types set."""
    lib = ctypes.CDLL(str(native_library()))
    pointer, u16, u32, u64, i64 = (
        ctypes.c_void_p, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64,
    )  # fmt: skip
    size, number = ctypes.c_size_t, ctypes.c_int
    for name, result, arguments in (
        ("rgpu_wire_roundtrip", i64, (u16, number, ctypes.c_char_p, size, pointer, size)),
        ("rgpu_wire_handshake", i64, (u16, ctypes.c_char_p, size, pointer, size)),
        ("rgpu_wire_channel", i64, (number, u32, ctypes.c_char_p, size, pointer, size)),
        ("rgpu_wire_header", number, (ctypes.c_char_p,)),
        ("rgpu_lease_page_bytes", u32, ()),
        ("rgpu_lease_slots", u32, ()),
        ("rgpu_lease_page_init", None, (pointer, u64)),
        ("rgpu_lease_page_valid", number, (pointer,)),
        ("rgpu_lease_charge", number, (pointer, u32, u64)),
        ("rgpu_lease_release", None, (pointer, u32, u64)),
        ("rgpu_lease_used", u64, (pointer,)),
        ("rgpu_lease_claim_slot", number, (pointer, u64)),
        ("rgpu_lease_clear_slot", None, (pointer, u32)),
        ("rgpu_lease_set_limit", None, (pointer, u64)),
        ("rgpu_lease_limit", u64, (pointer,)),
        ("rgpu_lease_set_shares", None, (pointer, u32, u32)),
        ("rgpu_lease_set_state", None, (pointer, u32)),
        ("rgpu_lease_compiling", number, (pointer, u32)),
        ("rgpu_lease_read_slot", number, (pointer, u32, ctypes.POINTER(u64))),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, list(arguments)
    return lib


_OUT = ctypes.create_string_buffer(1 << 18)


def command_roundtrip(opcode: int, is_reply: bool, head: bytes) -> bytes | int:
    """Decodes and encodes a command's head with the C++ codec. Returns the new bytes, or a negative
    number that says why it failed.
    """
    code = library().rgpu_wire_roundtrip(opcode, is_reply, head, len(head), _OUT, len(_OUT))
    return _OUT[:code] if code >= 0 else code


def handshake_roundtrip(opcode: int, head: bytes) -> bytes | int:
    """Does the same for a handshake message."""
    code = library().rgpu_wire_handshake(opcode, head, len(head), _OUT, len(_OUT))
    return _OUT[:code] if code >= 0 else code


def channel_roundtrip(channel: str, kind: int, body: bytes) -> bytes | int:
    """Does the same for the body of a message of a channel."""
    code = library().rgpu_wire_channel(
        channel == "compiler", kind, body, len(body), _OUT, len(_OUT)
    )
    return _OUT[:code] if code >= 0 else code


def header_accepted(header: bytes) -> bool:
    """Returns True if the C++ reader accepts these 40 bytes as a header."""
    return bool(library().rgpu_wire_header(header))
