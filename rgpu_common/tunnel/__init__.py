"""Connections inside gRPC streams: what the client's agent and the server's gateway share."""
