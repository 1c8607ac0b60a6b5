"""Operations of PyTorch by the schemas of what a node executes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays.torch_allowed import Allowed, resolved
from seam.draw import FLOATS, NUMBERS, A, Draw, V, words

torch: Any = import_module("torch")

_DTYPES = tuple(
    words(
        """
        float32 float32 float64 int64 int64 int32 int16 int8 uint8 bool complex64 bfloat16 float16
        float8_e4m3fn complex32 uint16
        """
    )
)
_TEXTS = (
    "",
    *words(
        """
        sum mean max min prod amax none trunc floor ij gelsy gelss gelsd reduced complete r L linear
        reflect
        """
    ),
)
_OWN = tuple(
    f"rgpu::{name}"
    for name in words("view item generator seed get_state set_state resize_storage to_host")
)


class TorchDraw(Draw):
    """Mostly arguments of the types that the schema has."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.names = sorted(Allowed.installed().names)

    def dtypes(self) -> list[str]:
        return list(_DTYPES)

    def itemsize(self, dtype: str) -> int:
        return int(getattr(torch, dtype).itemsize)

    def operation(self) -> tuple[str, list[Any], dict[str, Any], list[Any]]:
        if self.random.random() < 0.04:
            return self._own()
        name = self.random.choice(self.names)
        slots: list[Any] = []
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        several = self.random.choice((1, 2, 2, 3))
        for one in resolved(name)._schema.arguments:
            if one.has_default_value() and self.random.random() < 0.5:
                if not one.kwarg_only:
                    break
                continue
            value = self._argument(str(one.real_type), one.N or several, slots)
            if one.kwarg_only:
                keywords[one.name] = value
            else:
                arguments.append(value)
        return name, arguments, keywords, slots

    def _argument(self, kind: str, several: int, slots: list[Any]) -> Any:
        draw = self.random
        if draw.random() < 0.01:
            kind = draw.choice(("Tensor", "int", "str", "ScalarType", "List[int]"))
        if kind.startswith("Optional["):
            return None if draw.random() < 0.5 else self._argument(kind[9:-1], several, slots)
        if kind.startswith("List["):
            count = several if draw.random() < 0.8 else draw.randrange(6)
            return [Tag.LIST, *(self._argument(kind[5:-1], several, slots) for _ in range(count))]
        if kind == "Tensor":
            slots.append(self.object())
            return A
        if kind in ("int", "SymInt") and draw.random() < 0.3:
            slots.append(draw.choice(NUMBERS))
            return V
        return {
            "int": draw.choice(NUMBERS), "SymInt": draw.choice(NUMBERS),
            "bool": draw.random() < 0.5,
            "float": draw.choice(FLOATS), "number": draw.choice((*FLOATS, *NUMBERS)),
            "Scalar": draw.choice((*FLOATS, *NUMBERS)), "str": draw.choice(_TEXTS),
            "ScalarType": [Tag.DTYPE, draw.choice(_DTYPES)],
        }.get(kind)  # fmt: skip

    def _own(self) -> tuple[str, list[Any], dict[str, Any], list[Any]]:
        draw, name = self.random, self.random.choice(_OWN)
        if name == "rgpu::view":
            rank = draw.randrange(4)
            slots = [self.object(), *(draw.choice(NUMBERS) for _ in range(2 * rank + 1))]
            shape = [Tag.LIST, *[V] * rank]
            dtype = [Tag.DTYPE, draw.choice(_DTYPES)]
            return name, [A, dtype, draw.randrange(4), shape, shape, V], {}, slots
        if name in ("rgpu::item", "rgpu::resize_storage", "rgpu::seed"):
            return name, [A, V], {}, [self.object(), draw.choice(NUMBERS)]
        if name == "rgpu::generator":
            return name, [V], {}, [draw.choice(NUMBERS)]
        count = 2 if name == "rgpu::set_state" else 1
        return name, [A] * count, {}, [self.object() for _ in range(count)]
