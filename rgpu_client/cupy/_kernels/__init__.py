"""Kernels that a program writes itself: their source goes to the node, and is compiled there."""

from __future__ import annotations

from rgpu_client.cupy._kernels.elementwise import ElementwiseKernel
from rgpu_client.cupy._kernels.fusion import fuse
from rgpu_client.cupy._kernels.raw import RawKernel, RawModule
from rgpu_client.cupy._kernels.reduction import ReductionKernel

__all__ = ["ElementwiseKernel", "RawKernel", "RawModule", "ReductionKernel", "fuse"]
