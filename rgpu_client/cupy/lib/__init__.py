"""`cupy.lib`."""

from __future__ import annotations

from rgpu_client.cupy.lib import stride_tricks

__all__ = ["stride_tricks"]
