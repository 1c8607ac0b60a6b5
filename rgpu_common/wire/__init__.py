"""The Python view of the wire (docs/reference/wire-format.md).

`frame` and the messages of the `handshake`, a module each, are what the daemon needs; `codec`,
`messages` and `trace` serve tests and tools. The product's data path is C++ and uses none of this.
"""
