"""HTTP/2 (RFC 9113) with gRPC inside: what both ends of a tunnel need of it."""
