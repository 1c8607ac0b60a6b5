"""Helpers that several tests share. No module here imports from a conftest."""
