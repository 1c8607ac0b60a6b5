"""PyTorch in the worker of an array session: on a GPU where there is one, otherwise on the CPU."""

from __future__ import annotations

import re
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_common.arrays.memory import room_of, view_of
from rgpu_server.arrays import torch_cells, torch_half
from rgpu_server.arrays.library import STAND_IN_DEVICE, NotOfferedError, Operation, plain_words
from rgpu_server.arrays.torch_allowed import Allowed, changed_arguments, fresh_results, may_grow
from rgpu_server.arrays.torch_cells import SPARE_RESULTS
from rgpu_server.arrays.torch_guards import guarded
from rgpu_server.arrays.torch_layout import Layouts, dtype_name, dtype_named
from rgpu_server.arrays.torch_memory import Accounts, Ledger, without_room
from rgpu_server.arrays.torch_own import OwnOperations
from rgpu_server.arrays.torch_schema import check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

torch: Any = import_module("torch")

# Smaller results are charged once they are there.
_CHECKED_BYTES = 1 << 16
# What the CPU build executes in place of PyTorch's operator.
STAND_INS = {**torch_cells.STAND_INS, **torch_half.STAND_INS}
# The keyword of a template that gives the layouts of its results.
_LAYOUTS = "="


class TorchLibrary:
    """Executes the listed operators. See `rgpu_server.arrays.library.Library`."""

    name = "torch"

    def __init__(
        self,
        ledger: Ledger,
        total: int = 0,
        threads: int = 0,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes it.

        Args:
            ledger: what tensors are charged to.
            total: the bytes of the lease.
            threads: how many the CPU build uses; 0: its default.
            make_room: called when the process gets no memory, before it asks once more.
        """
        self.version = str(torch.__version__)
        self._cuda = bool(torch.cuda.is_available())
        self._device = torch.device("cuda", 0) if self._cuda else torch.device("cpu")
        self._accounts = Accounts(ledger, total)
        self._allowed = Allowed.installed()
        self._own = OwnOperations(self._device, self._accounts)
        self._total = total
        self._make_room = make_room
        self._ready = threading.local()
        if threads:
            torch.set_num_threads(threads)
        if self._cuda and total:
            # The ledger counts tensors; this fence counts what PyTorch keeps for later too.
            _, whole = torch.cuda.mem_get_info(0)
            torch.cuda.set_per_process_memory_fraction(min(1.0, total / whole), 0)

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        """See `Library.define`."""
        self._prepare_thread()
        given = dict(keywords)
        layouts = given.pop(_LAYOUTS, None)
        if operation.startswith("rgpu::"):
            if given or layouts is not None:
                raise NotOfferedError(f"{operation[:100]} takes no keywords")
            return self._own.define(operation, arguments)
        if layouts is not None and not isinstance(layouts, Layouts):
            raise NotOfferedError("the layouts of an operation's results have a wrong form")
        operator = self._allowed.find(operation)
        schema = operator._schema
        check(schema, arguments, given)
        call = operator._op
        if not self._cuda:
            call = STAND_INS.get(operation, call)
        # On a GPU a wild access ends the session's context; a CPU's would reach the process.
        call = guarded(operation, call, schema, gpu=self._cuda)
        pick = fresh_results(schema)
        spare = SPARE_RESULTS.get(operation, ())
        run = self._with_layouts(call, pick, spare) if layouts is not None else _plain(call, pick)
        changed = changed_arguments(schema)
        if may_grow(schema):
            run = self._settled(run, changed)
        draws = torch.Tag.nondeterministic_seeded in operator.tags
        return Operation(self._with_room(run, again=not changed), changed, draws=draws)

    def dtype(self, name: str) -> Any:
        """See `Library.dtype`."""
        return dtype_named(name)

    def scalar(self, dtype: str, value: Any) -> Any:
        """Returns a tensor without dimensions, in the memory of the host as PyTorch has it."""
        return torch.tensor(value, dtype=dtype_named(dtype))

    def constant(self, kind: str, text: str) -> Any:
        """Returns a layout of results, a device, a memory format or a tensor layout."""
        if kind == "results":
            return Layouts.parsed(text)
        if kind == "device" and text in ("this", "cpu"):
            return self._device if text == "this" else torch.device("cpu")
        known = _CONSTANTS.get(kind, {}).get(text)
        if known is None:
            raise NotOfferedError(f"there is no {kind[:40]} {text[:40]!r}")
        return known

    def keep(self, value: Any) -> Any:
        """See `Library.keep`. Numbers and lists of tensors are kept too."""
        if isinstance(value, torch.Tensor):
            self._accounts.hold(value)
        elif isinstance(value, list | tuple):
            self._keep_all(value)
        elif value is not None and not isinstance(value, _KEPT):
            raise NotOfferedError(f"a result of type {type(value).__name__} cannot be kept")
        return value

    def _keep_all(self, values: Sequence[Any]) -> None:
        """Keeps all values or, if the lease has no room for one, none."""
        kept: list[Any] = []
        try:
            for one in values:
                self.keep(one)
                kept.append(one)
        except BaseException:
            for one in kept:
                self.gone(one)
            raise

    def gone(self, value: Any) -> None:
        """See `Library.gone`."""
        if isinstance(value, torch.Tensor):
            self._accounts.drop(value)
        elif isinstance(value, list | tuple):
            for one in value:
                self.gone(one)

    def make(self, dtype: str, shape: Sequence[int]) -> tuple[Any, memoryview]:
        """See `Library.make`."""
        self._prepare_thread()
        chosen = dtype_named(dtype)
        size = chosen.itemsize
        for one in shape:
            size *= one
        self._accounts.check(size)
        made = self._with_room(torch.empty)(tuple(shape), dtype=chosen)
        kept = torch.empty_like(made, device=self._device) if self._cuda else made
        self.keep(kept)
        return (made, kept), room_of(made.data_ptr(), size, made)

    def made(self, value: Any) -> Any:
        """See `Library.made`."""
        host, kept = value
        return kept.copy_(host) if self._cuda else kept

    def elements(self, value: Any) -> tuple[str, Sequence[int], memoryview]:
        """See `Library.elements`."""
        if not isinstance(value, torch.Tensor):
            raise NotOfferedError(f"a {type(value).__name__} has no elements")
        if value.layout is not torch.strided:
            raise NotOfferedError(f"a tensor of layout {value.layout} cannot be read")
        whole = self._with_room(
            lambda tensor: tensor.resolve_conj().resolve_neg().contiguous().cpu()
        )(value)
        size = whole.numel() * whole.element_size()
        return dtype_name(whole.dtype), tuple(whole.shape), view_of(whole.data_ptr(), size, whole)

    def describe(self, value: Any) -> Any:
        """Returns dtype, sizes, strides, offset, bits and bytes of storage of a tensor; a list of
        descriptions of a list; a number in a list of its own.
        """
        if isinstance(value, list | tuple):
            return {"list": [None if one is None else self.describe(one) for one in value]}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if not isinstance(value, torch.Tensor):
            return {"value": value if isinstance(value, bool | int | float) else None}
        if value.layout is not torch.strided:
            raise NotOfferedError(f"a tensor of layout {value.layout} cannot be used")
        bits = int(value.is_conj()) + 2 * int(value.is_neg())
        return [
            dtype_name(value.dtype), list(value.shape), list(value.stride()),
            value.storage_offset(), bits, value.untyped_storage().nbytes(),
        ]  # fmt: skip

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        """Answers `version`, `memory` (bytes in use, of the lease, and most in use so far; a detail
        makes the last one count anew), `device` (its name, compute capability in two numbers,
        and number of multiprocessors) and `kind` (`cuda` or `cpu`).
        """
        if question == "version":
            return self.version
        if question == "memory":
            told = [self._accounts.used, self._total, self._accounts.peak]
            if details:
                self._accounts.peak = self._accounts.used
            return told
        if question == "kind":
            return str(self._device.type)
        if question == "device":
            if not self._cuda:
                return STAND_IN_DEVICE
            told = torch.cuda.get_device_properties(0)
            return [told.name, told.major, told.minor, told.multi_processor_count]
        raise NotOfferedError(f"there is no question {question[:40]!r}")

    def room(self, size: int, beside: int) -> int:
        """See `Library.room`."""
        return self._accounts.room(size, beside)

    def words(self, error: Exception) -> str:
        """See `Library.words`."""
        return plain_words(error)

    def sync(self) -> None:
        """See `Library.sync`."""
        if self._cuda:
            torch.cuda.synchronize()

    def _with_layouts(
        self, call: Any, pick: Callable[[Any], list[Any]], spare: Sequence[int]
    ) -> Callable[..., Any]:
        accounts = self._accounts

        def run(*arguments: Any, **keywords: Any) -> Any:
            layouts: Layouts = keywords.pop(_LAYOUTS)
            if layouts.size > _CHECKED_BYTES:
                accounts.check(layouts.size)
            return layouts.fit(pick(call(*arguments, **keywords)), spare)

        return run

    def _settled(
        self, call: Callable[..., Any], changed: Sequence[int | str]
    ) -> Callable[..., Any]:
        """Storages that the operator has grown are charged, whether it fails or not."""

        def run(*arguments: Any, **keywords: Any) -> Any:
            try:
                return call(*arguments, **keywords)
            finally:
                by_place: dict[int | str, Any] = dict(enumerate(arguments))
                by_place.update(keywords.items())
                given = [by_place.get(at) for at in changed]
                self._accounts.settle([one for one in _all_of(given) if torch.is_tensor(one)])

        return run

    def _with_room(self, call: Callable[..., Any], *, again: bool = True) -> Callable[..., Any]:
        """Where the process has no memory left, the error is the one of a full GPU.

        again: the call changes nothing in place, and so may be tried a second time.
        """

        def run(*arguments: Any, **keywords: Any) -> Any:
            try:
                return call(*arguments, **keywords)
            except (RuntimeError, MemoryError) as error:
                if not without_room(error):
                    raise
                text = str(error)
            # The failed call's own tensors are gone now.
            self._make_room()
            if again:
                return self._with_room_once(call, *arguments, **keywords)
            raise self._without_room(text)

        return run

    def _with_room_once(self, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return call(*arguments, **keywords)
        except (RuntimeError, MemoryError) as error:
            if not without_room(error):
                raise
            raise self._without_room(str(error)) from None

    def _without_room(self, text: str) -> BaseException:
        found = re.search(r"allocate (\d+) bytes", text)
        return self._accounts.full(int(found.group(1)) if found else 0)

    def _prepare_thread(self) -> None:
        """Autograd runs on the client. Its state belongs to each thread."""
        if not hasattr(self._ready, "mode"):
            self._ready.mode = torch.inference_mode()
            self._ready.mode.__enter__()


def _all_of(values: Sequence[Any]) -> list[Any]:
    return [part for one in values for part in (one if isinstance(one, list) else [one])]


def _plain(call: Any, pick: Callable[[Any], list[Any]]) -> Callable[..., Any]:
    return lambda *arguments, **keywords: pick(call(*arguments, **keywords))


_KEPT = (bool, int, float, complex, torch.Generator)
_CONSTANTS: dict[str, dict[str, Any]] = {
    "layout": {"strided": torch.strided},
    "memory_format": {
        dtype_name(one): one
        for one in (
            torch.contiguous_format, torch.preserve_format, torch.channels_last,
            torch.channels_last_3d,
        )
    },
}  # fmt: skip
