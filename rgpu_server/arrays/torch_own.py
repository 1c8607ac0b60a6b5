"""Operations of the array seam that are no operators of PyTorch: views, generators, storages."""

from __future__ import annotations

import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.arrays.messages import MOST_DIMENSIONS, Tag
from rgpu_server.arrays.library import NotOfferedError, Operation, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.arrays.torch_memory import Accounts

torch: Any = import_module("torch")

_MOST_SEED = (1 << 64) - 1
# How a state of the CPU's generator begins: its seed, one more than the numbers that are left in
# its block, whether it has a seed, and the place of the next number in the block.
_STATE = struct.Struct("=QiiQ")
_BLOCK = 624
_MOST_STORAGE = 1 << 46


class Own(Struct, frozen=True):
    """An operation of this module. takes: the kinds of its arguments, one letter each.

    o: an object; g: an object or None; n: a number slot; N: a list of number slots; d: a dtype;
    f: a constant number. reads: see `Operation`.
    """

    takes: str
    call: Callable[..., Any]
    reads: bool = True


class OwnOperations:
    """The operations by name, for tensors on one device."""

    def __init__(self, device: Any, accounts: Accounts) -> None:
        self._device = device
        self._accounts = accounts
        self.table = {
            "rgpu::view": Own("odfNNn", self._view, reads=False),
            "rgpu::item": Own("on", self._item),
            "rgpu::generator": Own("n", self._generator),
            "rgpu::seed": Own("gn", self._seed),
            "rgpu::get_state": Own("g", self._get_state),
            "rgpu::set_state": Own("go", self._set_state),
            "rgpu::default_dtype": Own("d", torch.set_default_dtype, reads=False),
            "rgpu::resize_storage": Own("on", self._resize_storage, reads=False),
            "rgpu::to_host": Own("o", lambda tensor: tensor.cpu()),
        }

    def define(self, name: str, arguments: Sequence[Any]) -> Operation:
        """Returns an operation.

        Raises:
            NotOfferedError: there is none, or its arguments have another form.
        """
        own = self.table.get(name)
        if own is None:
            raise NotOfferedError(f"there is no operation {name[:100]}")
        pairs = zip(own.takes, arguments, strict=False)
        if len(arguments) != len(own.takes) or not all(_fits(*pair) for pair in pairs):
            raise NotOfferedError(f"{name} was given arguments of another form")
        return Operation(own.call, reads=own.reads)

    def _view(
        self, base: Any, dtype: Any, bits: int, shape: list[int], stride: list[int], offset: int
    ) -> Any:
        """Returns a tensor that shares the storage of `base`. Sizes, strides and offset count
        elements of `dtype`. bits: 1 marks lazy conjugation, 2 lazy negation.
        """
        storage = base.untyped_storage()
        _check_inside(storage.nbytes(), dtype.itemsize, shape, stride, offset)
        if dtype == base.dtype:
            made = base.as_strided(shape, stride, offset)
        else:
            made = torch.empty(0, dtype=dtype, device=base.device)
            made.set_(storage, offset, shape, stride)
        # The bits of `base` are inherited where its dtype is.
        if bool(bits & 1) != made.is_conj():
            made = torch._conj(made)
        return torch._neg_view(made) if bool(bits & 2) != made.is_neg() else made

    def _item(self, several: Any, at: int) -> Any:
        if not isinstance(several, list | tuple):
            raise TypeError("an element was asked of what is no list")
        return several[at]

    def _generator(self, seed: int) -> Any:
        return self._seed(torch.Generator(self._device), seed, give=True)

    def _seed(self, generator: Any, seed: int, give: bool = False) -> Any:
        if not isinstance(seed, int) or not -_MOST_SEED <= seed <= _MOST_SEED:
            raise ValueError("a seed must be a number of at most 64 bits")
        chosen = self._chosen(generator)
        chosen.manual_seed(seed)
        return chosen if give else None

    def _get_state(self, generator: Any) -> Any:
        return self._chosen(generator).get_state()

    def _set_state(self, generator: Any, state: Any) -> None:
        chosen, private = self._chosen(generator), state.cpu().clone()
        if chosen.device.type == "cpu":
            _check_state(private)
        chosen.set_state(private)

    def _chosen(self, generator: Any) -> Any:
        """Returns the generator; None stands for the one that operators use by default."""
        if generator is None:
            if self._device.type == "cuda":
                return torch.cuda.default_generators[self._device.index or 0]
            return torch.default_generator
        if not isinstance(generator, torch.Generator):
            raise TypeError("a tensor was given in place of a generator")
        return generator

    def _resize_storage(self, base: Any, size: int) -> None:
        if not isinstance(size, int) or not 0 <= size <= _MOST_STORAGE:
            raise ValueError("a storage cannot have this size")
        storage = base.untyped_storage()
        if size < storage.nbytes():
            raise ValueError(
                f"a storage of {storage.nbytes()} bytes cannot shrink to {size}: other tensors may "
                "use its end"
            )
        self._accounts.check(size - storage.nbytes())
        storage.resize_(size)
        self._accounts.resized(base)


def _check_inside(
    size: int, item: int, shape: Sequence[int], stride: Sequence[int], offset: int
) -> None:
    """Checks that a view ends within a storage of `size` bytes."""
    numbers = [*shape, *stride, offset]
    if not all(type(one) is int and 0 <= one < 1 << 62 for one in numbers):
        raise ValueError("sizes, strides and offset of a view must be numbers from 0")
    if len(shape) != len(stride):
        raise ValueError("a view must have a stride for each size")
    if len(shape) > MOST_DIMENSIONS:
        raise RuntimeError(f"only tensors with up to {MOST_DIMENSIONS} dims are supported")
    if 0 in shape:
        return
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if (last + 1) * item > size:
        raise RuntimeError(f"a view would end behind its storage of {size} bytes")


def _check_state(state: Any) -> None:
    """Checks a state of the CPU's generator. PyTorch looks at each of its numbers alone, and reads
    beyond the block if more numbers are left than lie behind the place.
    """
    if state.dtype == torch.uint8 and state.dim() == 1 and len(state) >= _STATE.size:
        _, left, _, place = _STATE.unpack(bytes(state[: _STATE.size].tolist()))
        if 0 < left <= _BLOCK and place + left - 1 <= _BLOCK:
            return
    raise RuntimeError("this is no state of a generator: give one that get_state() has returned")


def _fits(kind: str, value: Any) -> bool:
    if kind == "g" and value is None:
        return True
    if kind in "og":
        return isinstance(value, Slot) and value.kind == Tag.SLOT_OBJECT
    if kind == "n":
        return isinstance(value, Slot) and value.kind == Tag.SLOT_VALUE
    if kind == "N":
        return isinstance(value, list) and all(_fits("n", one) for one in value)
    if kind == "d":
        return isinstance(value, torch.dtype)
    return type(value) is int
