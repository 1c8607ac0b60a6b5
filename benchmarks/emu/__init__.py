"""Speed of kernels on the emulated device, beside C and NumPy."""
