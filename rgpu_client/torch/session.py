"""The session of this process with PyTorch on a node."""

from __future__ import annotations

from rgpu_client.arrays.current import Current
from rgpu_client.torch.errors import raised
from rgpu_common.arrays.seams import Seam

session = Current(Seam.TORCH, raised)
use = session.use
current = session.current
