"""Connections inside gRPC streams, as the client's agent carries them."""
