"""A server of HTTP/2 for gRPC: state without sockets (connection), sockets, calls, places."""
