"""The gateway of `grpc:` and `grpcs:`: a process that takes tunnels and calls of the API over
HTTP/2 and brings them to the daemon.  It runs no tenant's code and decides nothing.
"""
