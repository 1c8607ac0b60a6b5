"""The CUDA driver API as typed data, its checks and its generators.  Imports nothing of rgpu."""
