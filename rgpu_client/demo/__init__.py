"""`rgpu demo`: a server with an emulated device, and two unmodified programs in two leases at
once.
"""
