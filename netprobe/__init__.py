"""The network probe: measures what lies between a client and a server.

So far it measures the path of the control plane to one server (`rgpu probe`).  Bandwidth, jitter,
background measurements and the choice between transports come with the transports; nothing here
pretends to do that yet.
"""
