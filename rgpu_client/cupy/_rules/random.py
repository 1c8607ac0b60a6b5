"""Rules of random numbers: `size`, or the common shape of the parameters."""

from __future__ import annotations

from typing import Any, Final

from rgpu_client.cupy import _catalogue
from rgpu_client.cupy._call import NOTHING, RULES, VALUES, Unsure
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._meta import checked_dtype, fresh
from rgpu_client.cupy._rules.common import broadcast, known, operand, shape_of

_INTEGERS: Final = frozenset(
    [
        "binomial",
        "geometric",
        "hypergeometric",
        "logseries",
        "negative_binomial",
        "poisson",
        "zipf",
        "randint",
        "integers",
        "random_integers",
        "tomaxint",
    ]
)
# A rule of their own, or none.
_OTHERS: Final = frozenset(
    [
        "rand",
        "randn",
        "permutation",
        "shuffle",
        "seed",
        "choice",
        "dirichlet",
        "multinomial",
        "multivariate_normal",
        "default_rng",
        "RandomState",
    ]
)


def add_random() -> None:
    """Adds the rules of `cupy.random`, of Generator and of RandomState."""
    for name, row in _catalogue.listed().items():
        if not name.startswith("random."):
            continue
        short = name.rpartition(".")[2]
        if short not in _OTHERS:
            state = row.parameters[:1] == ("state",)
            RULES[name] = _Draw(short, row.parameters[1:] if state else row.parameters, state)
    for name, made in (("rand", _rand), ("randn", _rand)):
        RULES[f"random.{name}"] = made
    for prefix in ("random.", "random.RandomState."):
        RULES[f"{prefix}permutation"] = _permutation
        RULES[f"{prefix}seed"] = _seed
    VALUES.update(name for name in RULES if name.startswith("random.RandomState.shuffle"))


class _Draw:
    """The rule of a distribution."""

    def __init__(self, name: str, parameters: tuple[str, ...], state: bool) -> None:
        self._parameters = parameters
        self._state = state
        self._integers = name in _INTEGERS

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        given = arguments[1:] if self._state else arguments
        named = dict(zip(self._parameters, given, strict=False)) | keywords
        if named.get("out") is not None:
            return NOTHING
        size, dtype = named.pop("size", None), named.pop("dtype", None)
        kind = checked_dtype(dtype if dtype is not None else "int64" if self._integers else float)
        for other in ("method", "out", "replace", "endpoint", "check_valid", "tol"):
            named.pop(other, None)
        if size is not None:
            return fresh(kind, shape_of(size))
        shapes = [operand(value)[0] for value in named.values() if value is not None]
        return fresh(kind, broadcast(*shapes))


def _rand(*size: int, dtype: Any = None) -> Any:
    return fresh(checked_dtype(float if dtype is None else dtype), shape_of(size))


def _permutation(*arguments: Any) -> Any:
    value = arguments[-1]
    if isinstance(value, int):
        return fresh("int64", (value,))
    if isinstance(value, Handle):
        source = known(value)
        if source.ndim > 1:
            raise Unsure
        return fresh(source.dtype, source.shape)
    raise Unsure


def _seed(*_: Any) -> Any:
    return NOTHING
