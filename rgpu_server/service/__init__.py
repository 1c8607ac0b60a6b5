"""What the server says to clients: the front door, the opening of sessions, the control-plane
API.
"""
