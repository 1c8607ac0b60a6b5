"""Executes the operations of the array seam, those of CuPy and those of PyTorch."""
