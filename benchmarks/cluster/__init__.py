"""Pods of a large cluster, from their creation to their allocation, over a real API server."""
