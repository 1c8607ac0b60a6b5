"""What the engine needs of a library of arrays: CuPy, PyTorch, or what stands in for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# What a node without a GPU says of its device: name, compute capability in two numbers, number of
# multiprocessors. Programs choose dtypes by the capability, and this one has all of them.
STAND_IN_DEVICE: Final = ["CPU of the GPU node", 8, 0, 1]


# What an error about memory is given if the operation has changed something before.
CHANGED: Final = "rgpu_changed"


class NotOfferedError(Exception):
    """An operation, or an argument of it, is not on the list of what is executed. The text is a
    sentence for the user.
    """


class Slot(Struct, frozen=True):
    """A place in a template's arguments that gets its value with each run.

    kind: a `Tag` that begins with SLOT. dtype: of a SLOT_SCALAR.
    """

    kind: str
    dtype: str = ""


class Operation(Struct, frozen=True):
    """An operation that is offered.

    call: executes it. changes: the positions of arguments, and the names of keywords, that it
    changes in place. reads: False if neither results nor changes have to do with any elements, as
    those of a view. draws: it takes random numbers, which changes the state of a generator.
    """

    call: Callable[..., Any]
    changes: tuple[int | str, ...] = ()
    reads: bool = True
    draws: bool = False


def plain_words(error: Exception) -> str:
    """Returns the text of an error. A KeyError shows its text in quotes; here it has none."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


class Library(Protocol):
    """A library of arrays, in the worker of one session.

    name: as `cupy` or `torch`. version: what the client compares with its own.
    """

    name: str
    version: str

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        """Checks an operation and the form of its arguments, which have Slots where each run gives
        values.

        Raises:
            NotOfferedError: it is not offered in this form.
        """

    def dtype(self, name: str) -> Any:
        """Returns the library's dtype. Raises NotOfferedError."""

    def scalar(self, dtype: str, value: Any) -> Any:
        """Returns a scalar of a dtype. Raises NotOfferedError."""

    def constant(self, kind: str, text: str) -> Any:
        """Returns what a LIBRARY node stands for. Raises NotOfferedError."""

    def keep(self, value: Any) -> Any:
        """Returns what is kept of a result under an id; charges it if the library does not charge
        by itself.

        Raises:
            MemoryError: the lease has no room. PyTorch's is a torch.OutOfMemoryError.
            NotOfferedError: results of this kind are not kept.
        """

    def gone(self, value: Any) -> None:
        """The value is not kept under an id any more."""

    def make(self, dtype: str, shape: Sequence[int]) -> tuple[Any, memoryview]:
        """Makes an array for uploaded elements, and the buffer that they are read into.

        Raises:
            MemoryError: the lease has no room. PyTorch's is a torch.OutOfMemoryError.
            NotOfferedError: there is no such dtype.
        """

    def made(self, value: Any) -> Any:
        """The elements of a made array are in its buffer. Returns what is kept."""

    def elements(self, value: Any) -> tuple[str, Sequence[int], memoryview]:
        """Returns dtype, shape and the elements in C order. Raises NotOfferedError."""

    def describe(self, value: Any) -> Any:
        """Returns what the client must know of a result, as msgpack can carry it."""

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        """Answers a question of the client's. Raises NotOfferedError."""

    def room(self, size: int, beside: int) -> int:
        """Returns how many bytes more the lease has room for.

        Raises:
            MemoryError: it has no room for `size` bytes and `beside` others; the text names `size`.
                PyTorch's is a torch.OutOfMemoryError.
        """

    def words(self, error: Exception) -> str:
        """Returns the text that the client's exception has."""

    def sync(self) -> None:
        """Waits until the device has done everything."""
