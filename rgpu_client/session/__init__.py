"""What lives beside a program: the agent that holds its lease.

Tunnels and the choice of a path come here too, when there are transports to choose from.
"""
