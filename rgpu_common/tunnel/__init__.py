"""Connections inside gRPC streams: code that the client's agent and the server's gateway share."""
