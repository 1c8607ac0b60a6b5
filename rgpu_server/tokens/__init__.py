"""The token loop: a process of its own that gives devices to leases and keeps what a new daemon
needs to adopt running workers.  DESIGN.md beside this file says who owns what.
"""
