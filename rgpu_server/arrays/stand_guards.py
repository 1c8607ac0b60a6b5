"""Checks of arguments that NumPy's and SciPy's C code trusts, where they stand in for CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Guard = Callable[[Mapping[str, Any]], None]


def guarded(public: str, names: Sequence[str], call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a call that checks its arguments first, if the library does not."""
    guard = _GUARDS.get(public)
    if guard is None:
        return call

    def run(*arguments: Any, **keywords: Any) -> Any:
        guard(dict(zip(names, arguments, strict=False)) | keywords)
        return call(*arguments, **keywords)

    return run


def _accumulate(given: Mapping[str, Any]) -> None:
    """NumPy writes to a result without dimensions as if it had one."""
    out: Any = given.get("out")
    a: Any = given.get("a")
    if out is not None and np.ndim(out) == 0 and np.ndim(a) > 0:
        raise ValueError("provided out is the wrong size for the accumulation.")


def _morphology(given: Mapping[str, Any]) -> None:
    """SciPy reads beyond an image without dimensions."""
    image: Any = given.get("input")
    if np.ndim(image) == 0:
        raise ValueError("the input must have at least one dimension")


_GUARDS: Final[dict[str, Guard]] = {
    **dict.fromkeys(
        ("cumsum", "cumprod", "cumproduct", "nancumsum", "nancumprod", "rgpu.ufunc_accumulate"),
        _accumulate,
    ),
    **{
        f"cupyx.scipy.ndimage.{name}": _morphology
        for name in (
            "grey_closing", "grey_opening", "grey_dilation", "grey_erosion", "white_tophat",
            "black_tophat", "morphological_gradient", "morphological_laplace",
        )
    },
}  # fmt: skip
