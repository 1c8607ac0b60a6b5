"""All rules. To import this module is to add them."""

from __future__ import annotations

from rgpu_client.cupy._rules import (
    creation,
    elementwise,
    fourier,
    indexing,
    joins,
    products,
    random,
    reductions,
    shapes,
)

MODULES = (creation, elementwise, fourier, indexing, joins, products, random, reductions, shapes)
elementwise.add_ufuncs()
random.add_random()
