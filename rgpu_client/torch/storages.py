"""Which object on the node a tensor of this device is.

A record hangs on the tensor's storage, which lives as long as any tensor that shares it. The record
knows one object for each way in which the storage is looked at: a *view*, which is the tuple
(dtype, shape, strides, offset, bits). A view gets an object on the node when it is first used.

A program that asks where a storage lies gets an address of a band in which no process has memory.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.package import torch
from rgpu_common.arrays.messages import Tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.arrays.issuer import Issuer

# (dtype, shape, strides, offset, bits); bits: 1 marks lazy conjugation, 2 lazy negation.
View = tuple[Any, tuple[int, ...], tuple[int, ...], int, int]

_create = torch._C._acc.create_empty_tensor
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_as_strided = torch.ops.aten.as_strided.default.redispatch
_set = torch.ops.aten.set_.source_Storage_storage_offset.redispatch
_VALUE = [Tag.SLOT_VALUE]
_MOST_VIEWS = 128
# So many operations later nobody names a view any more that was given up.
_LATER = 4096
# Autograd uses tensors on threads of its own.
_making = threading.RLock()


class Addresses:
    """Addresses for storages, each with room for its bytes. They are given when they are asked for.

    Linux gives no process memory in this band: on x86-64 it is beyond the 47 bits that a program
    gets unless it asks for more, and on arm64 beyond the 52 bits of any program. So the use of such
    an address as a pointer is a fault, and never another object's bytes.
    """

    _BAND = range(1 << 55, 1 << 56)
    # CUDA's allocator aligns as much.
    _SMALLEST = 512

    def __init__(self) -> None:
        self._next = self._BAND.start
        # By room: addresses that were given back. A garbage collector gives back, so there is no
        # lock around it.
        self._free: dict[int, list[int]] = {}

    def take(self, size: int) -> tuple[int, int]:
        """Returns an address and the bytes that are there, which are `size` or more.

        Raises:
            RuntimeError: the band is full.
        """
        room = max(self._SMALLEST, 1 << (size - 1).bit_length())
        try:
            return self._free.setdefault(room, []).pop(), room
        except IndexError:
            pass
        with _making:
            made, self._next = self._next, self._next + room
        if self._next > self._BAND.stop:
            raise RuntimeError(
                f"there is no address left for a storage of {size} bytes: free tensors whose "
                "data_ptr() was asked for"
            )
        return made, room

    def give_back(self, address: int, room: int) -> None:
        """Nobody uses the address any more."""
        self._free.setdefault(room, []).append(address)


_addresses = Addresses()


class Record:
    """The objects on the node of one storage.

    base: an object that shares the storage. pending: the view that `base` will be made with; nobody
    has used the storage yet, and the node does not have it. size: its bytes. held: the bytes that
    the node keeps for a storage that was made smaller. shared: the program wants other processes to
    see it. retired: objects of views that are made anew when they are used again, and the number of
    operations issued before each of them was given up.
    """

    # Most storages keep these. Each operation makes a record, so it does not set them.
    pending: View | None = None
    held = 0
    shared = False
    retired: Sequence[tuple[int, int]] = ()
    # The address, the bytes that are there, and what gives them back.
    _place: tuple[int, int, Any] | None = None

    def __init__(self, issuer: Issuer, base: int, ids: dict[View, int], size: int) -> None:
        self.issuer = issuer
        self.base = base
        self.ids = ids
        self.size = size

    def find(self, view: View) -> int:
        """Returns the object of a view, which is made if there is none."""
        known = self.ids.get(view)
        if known is not None:
            return known
        with _making:
            self.settle()
            known = self.ids.get(view)
            if known is None:
                known = self.ids[view] = self._look(view)
                if len(self.ids) > _MOST_VIEWS:
                    self._retire()
            return known

    def settle(self) -> None:
        """Makes the storage on the node, with any elements."""
        view, self.pending = self.pending, None
        if view is None:
            return
        dtype, shape, stride, _, _ = view
        made = [Tag.LIST, *shape], [Tag.LIST, *stride]
        keywords = {"dtype": [Tag.DTYPE, name_of(dtype)], "device": [Tag.LIBRARY, "device", "this"]}
        keywords["="] = [Tag.LIBRARY, "results", described(dtype, shape, stride)]
        key = ("empty_strided", dtype, shape, stride)
        self.issuer.made(self.base)
        template = self.issuer.template(key, "aten::empty_strided", made, keywords, 1)
        self.issuer.run(template, (), (self.base,))
        self.ids[view] = self.base

    def resize(self, size: int) -> None:
        """Gives the storage another size. The node keeps the bytes of one that is made smaller,
        because views of it may still be used.
        """
        there = max(self.size, self.held)
        if size > there:
            self.settle()
            self.issuer.grow(self.base, size - there)
            arguments = [[Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]]
            template = self.issuer.template("resize", "rgpu::resize_storage", arguments, {}, 0)
            self.issuer.run(template, (self.base, size), ())
        self.size, self.held = size, max(size, there)

    def address(self) -> int:
        """Returns where the storage lies for programs that ask; 0 if it has no bytes."""
        if not self.size:
            return 0
        with _making:
            if self._place is not None and self._place[1] < self.size:
                self._place[2]()
                self._place = None
            if self._place is None:
                taken = _addresses.take(self.size)
                finalizer = weakref.finalize(self, _addresses.give_back, *taken)
                finalizer.atexit = False
                self._place = (*taken, finalizer)
            return self._place[0]

    def _look(self, view: View) -> int:
        dtype, shape, stride, offset, bits = view
        count = len(shape)
        several = [Tag.LIST, *[_VALUE] * count]
        arguments = [[Tag.SLOT_OBJECT], [Tag.DTYPE, name_of(dtype)], bits, several, several, _VALUE]
        template = self.issuer.template(
            ("view", dtype, bits, count), "rgpu::view", arguments, {}, 1
        )
        made = self.issuer.new_id()
        self.issuer.run(template, (self.base, *shape, *stride, offset), (made,))
        return made

    def _retire(self) -> None:
        """Gives up the older half of the views, as of the rows of a table that a loop goes through.

        Another operation may just be about to name one of them. So they are freed later.
        """
        now = self.issuer.waiting[1]
        kept = []
        for since, one in self.retired:
            if since + _LATER < now:
                self.issuer.free(one)
            else:
                kept.append((since, one))
        older = list(self.ids)[: _MOST_VIEWS // 2]
        gone = [view for view in older if self.ids[view] != self.base]
        self.retired = [*kept, *((now, self.ids.pop(view)) for view in gone)]

    def __del__(self) -> None:
        free, base = self.issuer.free, self.base
        # The node has no object for a storage that nobody has used.
        free(base if self.pending is None else -base)
        for one in self.ids.values():
            if one != base:
                free(one)
        for _, one in self.retired:
            free(one)


class Form:
    """How new tensors of one view are made, each with a storage of its own."""

    __slots__ = ("_dtype", "_plain", "_shape", "size", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self._dtype, self._shape, stride, offset, _ = view
        # True: a tensor that PyTorch makes by itself has this view.
        self._plain = offset == 0 and _create(self._shape, self._dtype).stride() == stride
        # The bytes of the storage.
        self.size: int = (offset + extent(self._shape, stride)) * self._dtype.itemsize

    def adopt(self, issuer: Issuer, made: int) -> Any:
        """Returns a tensor for an object that the node has made, or will."""
        tensor = self._blank()
        tensor.untyped_storage()._rgpu = Record(issuer, made, {self.view: made}, self.size)
        return tensor

    def pending(self, issuer: Issuer) -> Any:
        """Returns a tensor that the node has not got yet, with any elements."""
        base = issuer.new_id()
        issuer.claim(base, self.size)
        tensor = self._blank()
        record = Record(issuer, base, {}, self.size)
        tensor.untyped_storage()._rgpu = record
        record.pending = self.view
        return tensor

    def _blank(self) -> Any:
        tensor = _create(self._shape, self._dtype)
        if self._plain:
            return tensor
        _, _, stride, offset, _ = self.view
        return _as_strided(_META, tensor, self._shape, stride, offset)


form_of = functools.lru_cache(1024)(Form)


def adopt(issuer: Issuer, made: int, view: View) -> Any:
    """Returns a tensor for an object that the node has made, or will, with a storage of its own."""
    return form_of(view).adopt(issuer, made)


def view_of(tensor: Any) -> View:
    """Returns how a tensor looks at its storage."""
    bits = (1 if tensor.is_conj() else 0) + (2 if tensor.is_neg() else 0)
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), bits)


def record_of(tensor: Any) -> Record:
    """Returns the record of a tensor of this device."""
    record: Record = tensor.untyped_storage()._rgpu
    return record


def id_of(tensor: Any) -> int:
    """Returns the object of a tensor of this device."""
    return record_of(tensor).find(view_of(tensor))


def record_in(storage: Any) -> Record:
    """Returns the record of a storage of this device.

    Raises:
        RuntimeError: PyTorch's C++ has made the storage, so the node does not know it.
    """
    record: Record | None = getattr(storage, "_rgpu", None)
    if record is None:
        raise RuntimeError(
            "a storage of the device rgpu belongs to no tensor: make one with "
            'torch.empty(..., device="rgpu").untyped_storage()'
        )
    return record


def over(storage: Any, dtype: Any, shape: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """Returns a tensor that looks at a storage."""
    blank = told_size(storage, dtype)
    return _as_strided(_META, blank, shape, stride, offset)


def told_size(storage: Any, dtype: Any = torch.uint8) -> Any:
    """Tells PyTorch's C++ the size of a storage, and returns a tensor of all its elements.

    C++ takes the size for 0 otherwise. It is not told for each result of an operator, because no
    operator asks for it.
    """
    count = record_in(storage).size // dtype.itemsize
    return _set(_META, _create((0,), dtype), storage, 0, (count,), (1,))


def seen(tensor: Any, shape: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """Returns a tensor that looks at the same storage in another way."""
    return _as_strided(_META, tensor, shape, stride, offset)


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Returns how many elements a storage needs for a view at offset 0."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def name_of(dtype: Any) -> str:
    """Returns the name of a dtype without `torch.`"""
    return str(dtype)[6:]


def described(dtype: Any, shape: Sequence[int], stride: Sequence[int]) -> str:
    """Returns the text of a layout, as the node reads it."""
    return f"{name_of(dtype)}:{','.join(map(str, shape))}:{','.join(map(str, stride))}"


_DTYPES = {name_of(one): one for one in vars(torch).values() if isinstance(one, torch.dtype)}


def dtype_named(name: str) -> Any:
    """Returns the dtype of a name."""
    return _DTYPES[name]
