"""NumPy's random numbers in CuPy's place: other numbers of the same distributions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., Any]

# CuPy's legacy functions that are another method of NumPy's RandomState, or none.
_SAME: Final = {"random": "random_sample", "ranf": "random_sample", "sample": "random_sample"}
_FLOATS_OF_GENERATOR: Final = frozenset(
    {"random", "standard_normal", "standard_exponential", "standard_gamma"}
)
# Methods that NumPy's legacy state has under this name and CuPy's module too.
_INTEGERS: Final = frozenset({"randint"})


def method(name: str, generator: bool) -> Call:
    """Returns a function `(state, *arguments)` for a method. `name` comes from the list."""
    if generator:
        return functools.partial(_generator, name)
    return functools.partial(_legacy, _SAME.get(name, name))


def of_state(state: np.random.RandomState, name: str) -> Call:
    """Returns a function of `cupy.random`, which draws from the session's own state."""
    if name in ("rand", "randn"):
        return functools.partial(_sized, state, "random_sample" if name == "rand" else name)
    if name == "random_integers":
        return functools.partial(_random_integers, state)
    return functools.partial(_legacy, _SAME.get(name, name), state)


def _legacy(name: str, state: np.random.RandomState, *arguments: Any, **keywords: Any) -> Any:
    if name == "seed":
        return state.seed(*[_seed(one) for one in arguments], **keywords)
    dtype = keywords.pop("dtype", None)
    if name in _INTEGERS:
        draw: Any = state.randint
        return draw(*arguments, **keywords, dtype=np.int64 if dtype is None else dtype)
    if name == "multivariate_normal":
        keywords.pop("method", None)
    call = getattr(state, name)
    try:
        made = call(*arguments, **keywords)
    except TypeError:
        # A dtype may have been given by its position, as CuPy has it and NumPy has not.
        if not arguments or not isinstance(arguments[-1], np.dtype):
            raise
        *arguments_left, dtype = arguments
        made = call(*arguments_left, **keywords)
    return made if dtype is None or made is None else np.asarray(made).astype(dtype)


def _sized(state: np.random.RandomState, name: str, *size: int, **keywords: Any) -> Any:
    dtype = keywords.pop("dtype", None)
    made = state.random_sample(size) if name == "random_sample" else state.standard_normal(size)
    return made if dtype is None else np.asarray(made).astype(dtype)


def _random_integers(
    state: np.random.RandomState, low: int, high: int | None = None, size: Any = None
) -> Any:
    begin, end = (1, low) if high is None else (low, high)
    return state.randint(begin, end + 1, size, dtype=np.int64)


def _seed(value: Any) -> Any:
    return value if value is None or isinstance(value, np.ndarray) else int(value) % (1 << 32)


def _generator(name: str, state: np.random.Generator, *arguments: Any, **keywords: Any) -> Any:
    dtype = None
    if name not in _FLOATS_OF_GENERATOR and name != "integers":
        dtype = keywords.pop("dtype", None)
    made = getattr(state, name)(*arguments, **keywords)
    if keywords.get("out") is not None:
        return None
    return made if dtype is None else np.asarray(made).astype(dtype)


def random_state(seed: Any = None) -> np.random.RandomState:
    """Makes a legacy state."""
    return np.random.RandomState(_seed(seed))


def default_rng(seed: Any = None) -> np.random.Generator:
    """Makes a generator."""
    return np.random.default_rng(seed)
