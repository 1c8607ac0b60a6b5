"""Charges the memory of PyTorch's tensors to a lease."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from rgpu_server.arrays.library import CHANGED

if TYPE_CHECKING:
    from collections.abc import Sequence

torch: Any = import_module("torch")

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB = 1024.0


_WITHOUT_ROOM = ("can't allocate memory", "not enough memory", "bad_alloc", "bad allocation")


def without_room(error: Exception) -> bool:
    """True if PyTorch, or Python, could not get memory from the system."""
    return isinstance(error, MemoryError) or any(one in str(error) for one in _WITHOUT_ROOM)


class Ledger(Protocol):
    """The memory of a lease."""

    def charge(self, size: int) -> bool:
        """Takes `size` bytes. Returns False, and takes nothing, if the lease has no room."""

    def charge_before(self, size: int) -> bool:
        """As `charge`, for bytes that are released again at once: no peak counts them."""

    def release(self, size: int) -> None:
        """Gives `size` bytes back."""

    @property
    def room(self) -> int:
        """How many bytes the lease has room for."""


class Accounts:
    """Charges each storage once, however many tensors share it.

    total: the bytes of the lease, for the text of an error; 0 means unknown.
    """

    def __init__(self, ledger: Ledger, total: int = 0) -> None:
        self._ledger = ledger
        self._total = total
        # By the address of the storage: how many tensors are kept, and how many bytes are charged.
        self._held: dict[int, tuple[int, int]] = {}
        self.used = 0
        self.peak = 0

    def check(self, size: int) -> None:
        """Checks that the lease has room for `size` more bytes.

        Raises:
            torch.OutOfMemoryError: it has none.
        """
        if not self._ledger.charge_before(size):
            raise self.full(size)
        self._ledger.release(size)

    def room(self, size: int, beside: int) -> int:
        """See `Library.room`."""
        if size:
            if not self._ledger.charge_before(size + beside):
                raise self.full(size)
            self._ledger.release(size + beside)
        return self._ledger.room

    def hold(self, tensor: Any) -> None:
        """A tensor is kept. Errors as `check`."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        count, charged = self._held.get(key, (0, 0))
        if size > charged:
            if not self._ledger.charge(size - charged):
                raise self.full(size)
            self._take(size - charged)
            charged = size
        self._held[key] = (count + 1, charged)

    def drop(self, tensor: Any) -> None:
        """A tensor is not kept any more."""
        key = tensor.untyped_storage()._cdata
        count, charged = self._held.pop(key)
        if count > 1:
            self._held[key] = (count - 1, charged)
        elif charged:
            self._ledger.release(charged)
            self.used -= charged

    def resized(self, tensor: Any) -> None:
        """The storage of a tensor that is kept has another size. Errors as `check`."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        count, charged = self._held[key]
        if size > charged and not self._ledger.charge(size - charged):
            raise self.full(size - charged)
        if size < charged:
            self._ledger.release(charged - size)
        self._take(size - charged)
        self._held[key] = (count, size)

    def settle(self, tensors: Sequence[Any]) -> None:
        """An operator may have grown the storages of tensors that it was given to write to. If the
        lease has no room, they get their old size again, and the tensors have no elements.

        Raises:
            torch.OutOfMemoryError: it has none.
        """
        kept = [one for one in tensors if one.untyped_storage()._cdata in self._held]
        try:
            for one in kept:
                self.resized(one)
        except torch.OutOfMemoryError as error:
            for one in kept:
                storage = one.untyped_storage()
                storage.resize_(self._held[storage._cdata][1])
                one.set_(storage, 0, (0,), (1,))
            setattr(error, CHANGED, True)
            raise

    def _take(self, size: int) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)

    def full(self, size: int) -> BaseException:
        """Returns the error of an operation that wants `size` more bytes."""
        total = f" of {_text(self._total)}" if self._total else ""
        error: BaseException = torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {_text(size)}. The lease{total} has "
            f"{_text(self.used)} in use by this session. Free tensors, or ask for a larger quota."
        )
        return error


def _text(size: float) -> str:
    for unit in _UNITS:
        if size < _KIB or unit == _UNITS[-1]:
            break
        size /= _KIB
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.2f} {unit}"
