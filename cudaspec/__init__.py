"""The CUDA driver API as typed data, with its checks and generators. Imports nothing of rgpu."""
