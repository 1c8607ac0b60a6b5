"""The session of this process with CuPy on a node."""

from __future__ import annotations

from rgpu_client.arrays.current import Current
from rgpu_client.cupy.errors import exception
from rgpu_common.arrays.seams import Seam

session = Current(Seam.CUPY, exception)
use = session.use
current = session.current
