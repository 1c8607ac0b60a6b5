"""The Python view of the wire (docs/reference/wire-format.md).

The daemon uses `frame` and the messages of the handshake, each of which has a module. Tests and
tools use `codec`, `messages` and `trace`. The product's data path is C++ and uses no module here.
"""
