"""The Python view of the wire (docs/reference/wire-format.md).

The daemon uses `frame` and the messages of the handshake, each of which has a module. `worker` and
`compiler` have the messages that processes of one node send each other. Tests and tools use
`codec`, `messages` and `trace`. The product's data path is C++ and uses no module here.
"""
