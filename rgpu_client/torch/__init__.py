"""PyTorch on a GPU node: `import rgpu_client.torch` gives `torch.device("rgpu")`.

Tensors of the device are PyTorch's own; their elements live on the node. Operators are sent to the
node, which executes them with its PyTorch; this process needs the CPU build alone.
"""

from __future__ import annotations

from rgpu_client.torch.setup import device

__all__ = ["device"]
