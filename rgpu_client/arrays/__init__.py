"""What the clients of CuPy and PyTorch share: a session that issues operations and reads values."""
