"""The error of a claim that is not prepared. The kubelet shows its sentence in the pod's events."""

from __future__ import annotations

from rgpu_common.errors import RgpuError


class PrepareError(RgpuError):
    """A claim cannot be prepared now. The kubelet asks again, so a cause that passes needs nothing
    else.
    """
