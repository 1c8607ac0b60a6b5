"""Variable declarations: `.global .align 8 .b8 x[16] = {...}` and parameter lists."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Final

from rgpu_emu.ptx.constants import constant
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.lex import NAME, literal, pack, split_commas, unpack, whole
from rgpu_emu.ptx.operands import Imm, Prototype, Variable
from rgpu_emu.ptx.register_params import SUFFIX
from rgpu_emu.ptx.types import PRED, TYPES, Type

MAX_VARIABLE_BYTES: Final = 1 << 33
MAX_PADDED: Final = 1 << 22  # elements of an initial value with nested braces
MAX_PARAM_BYTES: Final = 32764  # of one parameter, and of all of an entry
LINKAGE: Final = frozenset((".extern", ".visible", ".weak", ".common"))
_QUALIFIER: Final = re.compile(r"\s*(\.[a-z]\w*(?:::\w+)?)(?:\s*(?<=\.align)\s*(\d+))?")
_DECLARATOR: Final = re.compile(
    r"\s*([A-Za-z_$%][\w$]*)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?", re.DOTALL
)
_DIMENSION: Final = re.compile(r"\[([^\]]*)\]")
_SYMBOL: Final = re.compile(  # without blanks
    r"(?:(0[xX][fF]+0*)\()?(?:generic\()?([A-Za-z_$%][\w$]*)\){0,2}(?:([+-])(\w+))?\){0,2}"
)
_STARTS_NUMBER: Final = re.compile(r"[\d(~+-]")
_BRACE_OR_COMMA: Final = re.compile(r"[{},]")
_TWO_WORDS: Final = re.compile(r"[\w$%]\s+[\w$%]")
_OPAQUE: Final = frozenset((".texref", ".surfref", ".samplerref"))
_OPAQUE_NAMES: Final = re.compile(r"\s*(\.texref|\.surfref|\.samplerref)\b([^=]*)")


def parse_variables(text: str, space: str, linkage: frozenset[str] = frozenset()) -> list[Variable]:
    """Returns the variables of a declaration. text: what follows the state space, without `;`."""
    kind, align, vector, rest = _qualifiers(text)
    initial_at = rest.find("=")
    names = [rest] if initial_at >= 0 else split_commas(rest)
    return [
        _variable(name, space, kind, max(align, vector * kind.bytes), vector, linkage)
        for name in names
    ]


def opaque_names(text: str, space: str) -> dict[str, str]:
    """Returns name -> type of the textures, samplers and surfaces that a module declares as
    variables. text: what follows the state space. A variable in the old space .tex is a texture.
    """
    match = _OPAQUE_NAMES.match(text)
    if match is not None:
        kind, names = match.groups()
    elif space == "tex":
        kind, names = ".tex", text.rpartition(" ")[2]
    else:
        return {}
    found = (NAME.match(name.strip()) for name in names.split(","))
    return {name.group(): kind for name in found if name is not None}


def opaque_refusal(name: str, kind: str) -> PtxError:
    """Returns the refusal of code that uses such a variable."""
    return unsupported(
        f"the {kind} variable '{name}'",
        "is not supported by the emulated device: use texture and surface objects "
        "(cuTexObjectCreate, cuSurfObjectCreate), which kernels get as 64-bit parameters",
    )


def _qualifiers(text: str) -> tuple[Type, int, int, str]:
    kind: Type | None = None
    align, vector, pos, pointer = 0, 1, 0, False
    while True:
        match = _QUALIFIER.match(text, pos)
        if match is None:
            break
        word, number = match.groups()
        pos = match.end()
        if word == ".align":
            given = whole(number or "0", ".align")
            if given <= 0 or given & (given - 1) or given > 1 << 16:
                raise PtxError(f"'{text.strip()[:60]}': the alignment is not a power of two")
            # After .ptr, .align is the alignment of the object that the parameter points to.
            align = align if pointer else given
        elif word in (".v2", ".v4", ".v8"):
            vector = int(word[2:])
        elif word[1:] in TYPES:
            kind = TYPES[word[1:]]
        elif word in _OPAQUE:
            raise unsupported(
                f"a {word} parameter",
                "is not supported by the emulated device: use texture and surface objects, which "
                "kernels get as 64-bit parameters",
            )
        elif word == ".attribute":
            what = f"'{text.strip()[:60]}'"
            raise unsupported(what, "is managed or unified, which is not supported")
        elif word == ".ptr":
            pointer = True
        elif word not in (".global", ".const", ".local", ".shared"):
            raise PtxError(f"'{word}' is not known in the declaration '{text.strip()[:60]}'")
    if kind is None:
        raise PtxError(f"no type in the declaration '{text.strip()[:60]}'")
    return kind, align, vector, text[pos:]


def _variable(
    text: str, space: str, kind: Type, align: int, vector: int, linkage: frozenset[str]
) -> Variable:
    match = _DECLARATOR.fullmatch(text.rstrip())
    if match is None:
        raise PtxError(f"'{text.strip()[:60]}' is not a declaration")
    name, dimensions, initial = match.groups()
    element = kind.bytes * vector
    total, empty = element, False
    sizes: list[int] = []
    for found in map(str.strip, _DIMENSION.findall(dimensions)):
        empty = empty or not found
        sizes.append(_number(found) if found else 1)
        total *= sizes[-1]
        if total > MAX_VARIABLE_BYTES:
            raise PtxError(f"the variable {name[:60]} is too large")
    if space == "param" and total > MAX_PARAM_BYTES:
        raise PtxError(f"the parameter {name} is larger than {MAX_PARAM_BYTES} bytes")
    data, relocations = _initial(initial, kind, [*sizes, vector]) if initial else (b"", [])
    if empty:
        total = len(data) if data else 0
    if total > MAX_VARIABLE_BYTES or len(data) > total:
        raise PtxError(f"the variable {name} is too large, or has too many initial values")
    return Variable(
        name,
        space,
        kind,
        max(align, kind.bytes),
        total,
        visible=".visible" in linkage or ".weak" in linkage or ".common" in linkage,
        extern=".extern" in linkage,
        weak=".weak" in linkage or ".common" in linkage,
        initial=data.rstrip(b"\0") if not relocations else data,
        relocations=relocations,
    )


def _number(text: str) -> int:
    value = literal(text) or constant(text)
    if value is None or value.float_bits or not 0 <= value.value <= MAX_VARIABLE_BYTES:
        raise PtxError(f"'{text}' is not an array size")
    return value.value


def _initial(text: str, kind: Type, sizes: list[int]) -> tuple[bytes, list[tuple[int, str, int]]]:
    """Returns the bytes and relocations of an initial value. sizes: the elements of each
    dimension.
    """
    text = text.strip()
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    words = _nested(inner, sizes[1:]) if "{" in inner else inner.split(",")
    out = bytearray()
    relocations: list[tuple[int, str, int]] = []
    for part in words:
        word = part.strip()
        if not word:
            continue
        value = literal(word)
        if value is None and _STARTS_NUMBER.match(word) and _SYMBOL.fullmatch(word) is None:
            value = constant(word)
        if value is not None:
            out += _encode(value, kind)
        else:
            _relocate(word, kind, out, relocations)
    return bytes(out), relocations


def _nested(text: str, sizes: list[int]) -> list[str]:
    """Returns the elements of an initial value with nested braces. Each inner pair of braces holds
    the elements of one row; those that it lacks are zero.
    """
    row = prod(sizes)
    found: list[str] = []
    for part in _split_at_depth(text):
        word = part.strip()
        if word[:1] != "{":
            found.append(word)
            continue
        if word[-1:] != "}" or not sizes:
            raise PtxError(f"the braces of the initial value '{word[:40]}' do not fit")
        inside = [w for w in _nested(word[1:-1], sizes[1:]) if w]
        if len(inside) > row:
            raise PtxError(f"'{word[:40]}' has too many initial values")
        if len(found) + row > MAX_PADDED:
            raise unsupported(
                f"initialiser '{word[:40]}'", f"fills more than {MAX_PADDED} elements"
            )
        found += [*inside, *["0"] * (row - len(inside))]
    return found


def _split_at_depth(text: str) -> list[str]:
    """Returns the parts between the commas that are in no braces."""
    parts, start, depth = [], 0, 0
    for match in _BRACE_OR_COMMA.finditer(text):
        sign = match.group()
        if sign == "," and not depth:
            parts.append(text[start : match.start()])
            start = match.end()
        depth += {"{": 1, "}": -1}.get(sign, 0)
    return [*parts, text[start:]]


def _relocate(
    word: str, kind: Type, out: bytearray, relocations: list[tuple[int, str, int]]
) -> None:
    match = None if _TWO_WORDS.search(word) else _SYMBOL.fullmatch("".join(word.split()))
    if match is None:
        raise PtxError(f"'{word[:60]}' is not an initial value")
    mask, name, sign, offset = match.groups()
    addend = _number(offset) * (-1 if sign == "-" else 1) if offset else 0
    if mask is None:
        if kind.bits != 64:
            raise unsupported(f"initialiser '{word}'", "puts an address into fewer than 64 bits")
        relocations.append((len(out), name, addend))
    elif int(mask, 16) == 0xFF:
        relocations.append((len(out), name, addend))
    else:  # byte n of an address; the relocation of its first byte is n bytes before this one
        back = (int(mask, 16).bit_length() - 1) // 8
        if (len(out) - back, name, addend) not in relocations[-1:]:
            raise unsupported(f"initialiser '{word}'", "takes one byte of an address alone")
    out += bytes(kind.bytes)


def _encode(value: Imm, kind: Type) -> bytes:
    if kind.kind == "f" and value.float_bits != kind.bits:
        number = float(value.value)
        if value.float_bits:
            number = unpack(value.value, value.float_bits)
        return pack(number, kind.bits)
    if value.float_bits not in (0, kind.bits):
        raise PtxError(f"a floating-point number is not an initial value of a .{kind.name}")
    return (value.value & ((1 << kind.bits) - 1)).to_bytes(kind.bytes, "little")


def parse_prototype(results: str, params: str) -> Prototype:
    """Returns the prototype for the two parenthesised lists of a function header. Either may be
    empty.
    """
    return Prototype(params=_parameters(params), results=_parameters(results))


def _parameters(text: str) -> list[Variable]:
    found: list[Variable] = []
    for part in split_commas(text):
        word = part.strip()
        if not word:
            continue
        if word.startswith(".reg"):
            found.append(_register_parameter(word))
            continue
        if not word.startswith(".param"):
            raise PtxError(f"'{word[:60]}' is not a parameter")
        types, _, name = word[6:].rpartition(" ")
        if NAME.fullmatch(name) and types[-1:].isalnum():
            found.append(_scalar(types, name))
        else:
            found += parse_variables(word[6:], "param")
    return found


def _register_parameter(word: str) -> Variable:
    types, _, name = word[4:].rpartition(" ")
    variable = _scalar(types, name + SUFFIX) if NAME.fullmatch(name) else None
    if variable is None or variable.type is PRED or variable.bytes != variable.type.bytes:
        raise PtxError(f"'{word[:60]}' is not a register parameter")
    return variable


def _scalar(types: str, name: str) -> Variable:
    """Returns a parameter that is no array. Few different types make most of them."""
    kind, align, size = _scalar_type(types)
    return Variable(name, "param", kind, align, size, False, False, False, b"", [])


@lru_cache(maxsize=256)
def _scalar_type(types: str) -> tuple[Type, int, int]:
    """Returns the type, alignment and bytes of a scalar parameter."""
    (found,) = parse_variables(f"{types} x", "param")
    return found.type, found.align, found.bytes


def layout(params: list[Variable]) -> tuple[list[tuple[int, int]], int]:
    """Returns (offset, bytes) of each parameter in order, and the size of all parameters
    together.
    """
    at, places = 0, []
    for variable in params:
        at = (at + variable.align - 1) // variable.align * variable.align
        places.append((at, variable.bytes))
        at += variable.bytes
    if at > MAX_PARAM_BYTES:
        raise PtxError(f"the parameters are larger than {MAX_PARAM_BYTES} bytes")
    return places, at
