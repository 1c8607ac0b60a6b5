"""Tests of the emulated device by its driver ABI, without server or client."""
