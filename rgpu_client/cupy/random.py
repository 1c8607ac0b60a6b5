"""`cupy.random` on the node. The numbers are the node's: CuPy's on a GPU, NumPy's without one."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client.cupy import _catalogue, _functions
from rgpu_client.cupy._array import ndarray
from rgpu_client.cupy._call import call
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._session import session
from rgpu_client.cupy._transfer import upload


class _State(Handle):
    """A source of random numbers on the node."""

    __slots__ = ()
    _prefix = ""
    _maker = ""

    def __init__(self, seed: Any = None) -> None:
        current = session()
        value = upload(np.asarray(seed), current) if isinstance(seed, list | np.ndarray) else seed
        made = current.new_id()
        super().__init__(current, made, type(self))
        given: Any = ["a"] if isinstance(value, Handle) else ["v"]
        entry = current.learn((self._maker, type(value)), (self._maker, [given], {}), None, 1)
        current.run(entry.template, (value._id if isinstance(value, Handle) else value,), (made,))

    def __getattr__(self, name: str) -> Any:
        public = f"{self._prefix}.{name}"
        if name.startswith("_") or public not in _catalogue.listed():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def method(*arguments: Any, **keywords: Any) -> Any:
            if keywords.get("out", 0) is None:
                del keywords["out"]
            return call(public, (self, *arguments), keywords)

        method.__name__ = name
        return method

    def __dir__(self) -> list[str]:
        return sorted(_catalogue.within(f"{self._prefix}."))


class Generator(_State):
    """A generator of random numbers, as `default_rng` makes it."""

    __slots__ = ()
    _prefix = "random.Generator"
    _maker = "random.default_rng"


class RandomState(_State):
    """The legacy source of random numbers."""

    __slots__ = ()
    _prefix = "random.RandomState"
    _maker = "random.RandomState"

    def rand(self, *size: int, dtype: Any = float) -> Any:
        """Returns numbers between 0 and 1."""
        return self.random_sample(size, np.dtype(dtype))

    def randn(self, *size: int, dtype: Any = float) -> Any:
        """Returns normally distributed numbers."""
        return self.standard_normal(size, np.dtype(dtype))


def default_rng(seed: Any = None) -> Generator:
    """Returns a new generator; the same seed gives the same numbers on the same kind of node."""
    return seed if isinstance(seed, Generator) else Generator(seed)


def bytes(length: int) -> Any:  # noqa: A001
    """Returns random bytes. Waits for them."""
    made = call("random.randint", (0, 256, length, np.dtype("uint8")), {})
    assert isinstance(made, ndarray)
    return made.tobytes()


__getattr__, __dir__ = _functions.lazy(__name__, "random.", globals())
