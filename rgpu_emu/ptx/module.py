"""The module index: finds every function and variable of a PTX text. Bodies are parsed on
demand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.body import BodyParser
from rgpu_emu.ptx.declare import LINKAGE, opaque_names, parse_prototype, parse_variables
from rgpu_emu.ptx.errors import (
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    PtxError,
    refusal_of,
    unsupported,
)
from rgpu_emu.ptx.lex import STRING, line_of, strip_comments, whole
from rgpu_emu.ptx.operands import Prototype
from rgpu_emu.ptx.target import read_target

if TYPE_CHECKING:
    from rgpu_emu.ptx.operands import Body, Variable

NEWEST_VERSION: Final = 99
REGISTERS_PER_SM: Final = 65536
EAGER_BYTES: Final = 4 << 20  # of larger modules only the instruction names are checked at first
_TOP: Final = re.compile(
    r"\s*(?:"
    r"\.version\s+(\d{1,4})\.(\d{1,4})"  # 1, 2
    r"|\.target\s+([^\n;]+);?"  # 3
    r"|\.address_size\s+(\d{1,4})"  # 4
    r"|(\.(?:file|loc)\b[^\n]*|\.pragma[^;]*;)"  # 5
    r"|(\.section\b)"  # 6
    r"|((?:\.(?:extern|visible|weak|common)\s+)*)\.(entry|func)\b"  # 7, 8
    r"|((?:\.(?:extern|visible|weak|common)\s+)*)\.(global|const|shared|tex)\b([^;]*);"  # 9, 10, 11
    r"|\.alias\s+([\w$%]+)\s*,\s*([\w$%]+)\s*;"  # 12, 13
    r"|(;)"  # 14
    r")"
)
_ATTRIBUTES: Final = re.compile(r"(?:\s*\.(?:attribute\s*\((?:[^()]|\([^()]*\))*\)|noreturn))*")
_HEADER: Final = re.compile(
    r"\s*(?:\(([^)]*)\)\s*)?([A-Za-z_$%][\w$]*)\s*(?:\(([^)]*)\))?"  # results, name, parameters
)
_HEADER_END: Final = re.compile(r"[{;]")
_PRAGMA_LAST: Final = re.compile(r"\.pragma\s[^;{}]*\Z")
_HEADER_GOES_ON: Final = re.compile(r"\s*(?:\{|\.(?:max|min|req|pragma|noreturn|explicit|blocks))")
_BRACES: Final = re.compile(r"[{}]|" + STRING)
_MAXNTID: Final = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_REQNTID: Final = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_MAXNREG: Final = re.compile(r"\.maxnreg\s+(\d+)")
_MINNCTAPERSM: Final = re.compile(r"\.minnctapersm\s+(\d+)")
_TUNING: Final = re.compile(r"\.(\w+)")
_KNOWN_TUNING: Final = frozenset(
    [
        "maxntid",
        "reqntid",
        "maxnreg",
        "minnctapersm",
        "maxnctapersm",
        "pragma",
        "noreturn",
        "attribute",
        "unified",
        "abi_preserve",
        "abi_preserve_control",
        "explicitcluster",
        "reqnctapercluster",
        "maxclusterrank",
        "blocksareclusters",
    ]
)


@dataclass(eq=False)
class Function:
    """An entry or device function.

    Attributes:
        kind: 'entry' or 'func'.
        span: the place of its body in the module's text; (0, 0) for a declaration.
        max_threads: from .maxntid or .reqntid; 0 without them.
        required: the block of .reqntid; zeros without it.
        max_registers: from .maxnreg, or from .minnctapersm and the threads; 0 without them.
        refused: the first thing in its header or body that the emulated device lacks.
    """

    name: str
    kind: str
    visible: bool
    weak: bool
    prototype: Prototype
    span: tuple[int, int]
    pos: int
    max_threads: int
    required: tuple[int, int, int]
    max_registers: int
    module: Module
    refused: PtxError | None = None
    _parsed: BodyParser | None = None

    @property
    def defined(self) -> bool:
        return self.span != (0, 0)

    def _parse(self) -> BodyParser:
        if self.refused is not None:
            raise self.refused
        if self._parsed is None:
            parser = BodyParser(self.module.text, self.span, self.prototype)
            parser.parse()
            self._parsed = parser
        return self._parsed

    def body(self) -> Body:
        """Returns the parsed body; PtxError if it is wrong."""
        return self._parse().body

    def calls(self) -> set[str]:
        """Returns the names of the functions that it calls directly."""
        return self._parse().calls

    def symbols(self) -> set[str]:
        """Returns the module-level names that it uses as values or addresses."""
        return self._parse().symbols

    def indirect(self) -> bool:
        """Returns True if it calls a function by pointer."""
        return self._parse().indirect

    def text(self) -> str:
        return self.module.text[slice(*self.span)]


@dataclass(eq=False)
class Module:
    """One PTX input, indexed.

    Attributes:
        target: the number of its architecture; 0 if .target names none, -1 without .target.
        opaque: name -> type of its texture, sampler and surface variables.
    """

    text: str
    version: int = 0
    target: int = -1
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)

    @property
    def large(self) -> bool:
        """True if bodies are parsed only when they are lowered."""
        return len(self.text) > EAGER_BYTES


def parse_module(source: str) -> Module:
    """Indexes a PTX text.

    Raises:
        PtxError: 218 with a line if the text cannot be read; 222 for a PTX version that is too new.
    """
    text = strip_comments(source.rstrip("\0"))
    module = Module(text)
    pos = 0
    while True:
        match = _TOP.match(text, pos)
        if match is None:
            break
        try:
            pos = _item(module, match)
        except Exception as error:  # a defect of the parser refuses only this module
            line = line_of(text, match.end() - len(match.group().lstrip()))
            raise refusal_of(error, "this declaration").at(line) from None
    if text[pos:].strip():
        lead = len(text[pos:]) - len(text[pos:].lstrip())
        raise PtxError(
            f"cannot read '{text[pos:].split(maxsplit=1)[0][:60]}'", line=line_of(text, pos + lead)
        )
    if not module.version:
        raise PtxError("the module does not begin with .version", line=1)
    if module.target < 0:
        raise PtxError("the module has no .target: write one below .version", line=1)
    return module


def _item(module: Module, match: re.Match[str]) -> int:
    if match.group(8):
        return _function(module, match)
    if not module.version and not match.group(1) and not match.group(5):
        raise PtxError("the module does not begin with .version")
    if match.group(1):
        module.version = int(match.group(1)) * 10 + int(match.group(2))
        if module.version > NEWEST_VERSION:
            raise PtxError(
                f"PTX version {match.group(1)}.{match.group(2)} is newer than 9.x, which is read",
                result=CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            )
    elif match.group(3):
        module.target = read_target(match.group(3))
    elif match.group(4):
        if match.group(4) != "64":
            raise unsupported(
                f".address_size {match.group(4)}",
                "is not supported: the emulated device has 64-bit addresses",
            )
    elif match.group(6):
        start = module.text.find("{", match.end())
        if start < 0:
            raise PtxError("the .section has no body")
        return _matching_brace(module.text, start + 1)
    elif match.group(10):
        _module_variables(module, match)
    elif match.group(12):
        _alias(module, match.group(12), match.group(13))
    return match.end()


def _module_variables(module: Module, match: re.Match[str]) -> None:
    linkage = frozenset(match.group(9).split())
    if not linkage <= LINKAGE:
        raise PtxError(f"'{match.group(9)}' is not a linkage")
    opaque = opaque_names(match.group(11), match.group(10))
    if opaque:
        module.opaque.update(opaque)
        return
    for variable in parse_variables(match.group(11), match.group(10), linkage):
        old = module.variables.get(variable.name)
        if old is None or old.extern:
            module.variables[variable.name] = variable
        elif not variable.extern:
            raise PtxError(f"{variable.name} is defined twice")


def _alias(module: Module, alias: str, target: str) -> None:
    function = module.functions.get(target)
    if function is None:
        raise PtxError(f".alias names {target}, which is not defined")
    module.functions[alias] = function


def _function(module: Module, match: re.Match[str]) -> int:
    text = module.text
    linkage = frozenset((match.group(7) or "").split())
    header_at = match.end()
    if not module.version:
        raise PtxError("the module does not begin with .version")
    before = _ATTRIBUTES.match(text, header_at)
    header = _HEADER.match(text, before.end() if before else header_at)
    end = _HEADER_END.search(text, header.end()) if header is not None else None
    if header is None or end is None:
        raise PtxError(f"the header of .{match.group(8)} cannot be read")
    results, name, params = header.groups()
    tuning = text[header.end() : end.start()] + (before.group() if before else "")
    end = _after_pragmas(text, header.end(), end)
    span, after = (0, 0), end.end()
    if end.group() == "{":
        after = _matching_brace(text, end.end())
        span = (end.end(), after - 1)
    prototype, refused = Prototype(), None
    try:
        _check_tuning(tuning)
        prototype = parse_prototype(results or "", params or "")
    except PtxError as error:
        # A header that is not supported refuses its own function. What only declares it has no use.
        if not error.unsupported or span == (0, 0):
            raise
        refused = error.at(line_of(text, match.start(8)))
    prototype.noreturn = ".noreturn" in tuning
    old = module.functions.get(name)
    if old is not None and old.defined and span != (0, 0):
        raise PtxError(f"{name} is defined twice")
    if old is None or not old.defined:
        module.functions[name] = Function(
            name,
            match.group(8),
            ".visible" in linkage or ".weak" in linkage,
            ".weak" in linkage,
            prototype,
            span,
            match.start(8),
            _max_threads(tuning),
            _required_block(tuning),
            _max_registers(tuning),
            module,
            refused,
        )
    return after


def _after_pragmas(text: str, start: int, end: re.Match[str]) -> re.Match[str]:
    """Returns the end of a header. The semicolon of a .pragma in it is not its end."""
    while (
        end.group() == ";"
        and _PRAGMA_LAST.search(text, start, end.start())
        and _HEADER_GOES_ON.match(text, end.end())
    ):
        found = _HEADER_END.search(text, end.end())
        if found is None:
            break
        start, end = end.end(), found
    return end


def _check_tuning(tuning: str) -> None:
    for word in _TUNING.findall(tuning):
        if word not in _KNOWN_TUNING:
            raise PtxError(f"the directive .{word} is not known in a function header")
        if word in ("explicitcluster", "reqnctapercluster", "maxclusterrank", "blocksareclusters"):
            raise unsupported(
                f"directive '.{word}'", "needs clusters, which the emulated device does not have"
            )


def _block_of(match: re.Match[str]) -> tuple[int, int, int]:
    x, y, z = (whole(n, ".maxntid or .reqntid") if n else 1 for n in match.groups())
    return x, y, z


def _required_block(tuning: str) -> tuple[int, int, int]:
    match = _REQNTID.search(tuning)
    return (0, 0, 0) if match is None else _block_of(match)


def _max_threads(tuning: str) -> int:
    match = _REQNTID.search(tuning) or _MAXNTID.search(tuning)
    if match is None:
        return 0
    x, y, z = _block_of(match)
    if not 1 <= x * y * z <= 1024:
        raise PtxError("more than 1024 threads, or none, in .maxntid or .reqntid")
    return x * y * z


def _max_registers(tuning: str) -> int:
    bounds = [whole(n, ".maxnreg") for n in _MAXNREG.findall(tuning)]
    blocks = _MINNCTAPERSM.search(tuning)
    if blocks is not None:
        threads = whole(blocks.group(1), ".minnctapersm") * (_max_threads(tuning) or 1)
        bounds.append(max(REGISTERS_PER_SM // max(threads, 1), 1))
    return min((bound for bound in bounds if bound), default=0)


def _matching_brace(text: str, pos: int) -> int:
    """Returns the position behind the '}' that closes the '{' before `pos`."""
    at, depth = pos, 1
    while depth and (close := text.find("}", at)) >= 0:
        depth += text.count("{", at, close) - 1
        at = close + 1
    # Braces in strings do not count, so a text with a string is read by its parts.
    if not depth and text.find('"', pos, at) < 0:
        return at
    depth = 1
    for match in _BRACES.finditer(text, pos):
        brace = match.group()
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    raise PtxError("a '{' is not closed")
