"""PTX fundamental types: the width and kind of each.

https://docs.nvidia.com/cuda/parallel-thread-execution/#fundamental-types
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Type:
    """A PTX type.

    kind: 's' signed, 'u' unsigned, 'b' untyped bits, 'f' IEEE float, 'h' bfloat16, 'p' predicate,
    'x' packed pair.
    """

    name: str
    bits: int
    kind: str

    @property
    def bytes(self) -> int:
        return max(self.bits // 8, 1)

    @property
    def llvm(self) -> str:
        """The IR type for arithmetic on this type. bfloat16 and pairs are passed as integers."""
        if self.kind == "f":
            return {16: "half", 32: "float", 64: "double"}[self.bits]
        return f"i{self.bits}"


TYPES: Final[dict[str, Type]] = {
    t.name: t
    for t in (
        *(Type(f"{k}{n}", n, k) for k in "sub" for n in (8, 16, 32, 64)),
        Type("b128", 128, "b"),
        Type("f16", 16, "f"),
        Type("f32", 32, "f"),
        Type("f64", 64, "f"),
        Type("bf16", 16, "h"),
        Type("f16x2", 32, "x"),
        Type("bf16x2", 32, "x"),
        Type("s16x2", 32, "x"),
        Type("u16x2", 32, "x"),
        Type("pred", 1, "p"),
    )
}
PRED: Final = TYPES["pred"]
