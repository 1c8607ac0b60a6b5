"""`rgpu demo`: a server with an emulated device, and two unmodified programs that run at the same
time in two leases.
"""
