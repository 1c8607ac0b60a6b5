"""The assertions of `cupy.testing`, which read both arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_client.cupy._creation import asnumpy


def assert_allclose(actual: Any, desired: Any, *arguments: Any, **keywords: Any) -> None:
    """Checks that elements are close, as NumPy's."""
    np.testing.assert_allclose(asnumpy(actual), asnumpy(desired), *arguments, **keywords)


def assert_array_equal(x: Any, y: Any, *arguments: Any, **keywords: Any) -> None:
    """Checks that elements are equal, as NumPy's."""
    np.testing.assert_array_equal(asnumpy(x), asnumpy(y), *arguments, **keywords)


def assert_array_almost_equal(x: Any, y: Any, *arguments: Any, **keywords: Any) -> None:
    """Checks that elements are almost equal, as NumPy's."""
    np.testing.assert_array_almost_equal(asnumpy(x), asnumpy(y), *arguments, **keywords)


def assert_array_less(x: Any, y: Any, *arguments: Any, **keywords: Any) -> None:
    """Checks that elements are less, as NumPy's."""
    np.testing.assert_array_less(asnumpy(x), asnumpy(y), *arguments, **keywords)
