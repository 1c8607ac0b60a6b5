"""One gRPC call over an HTTP/2 connection of its own: what the agent needs of both, and no more.

A general gRPC library hands each message from thread to thread three times; here the event loop
reads the socket itself.  That halves what the agent adds to a call.
"""
