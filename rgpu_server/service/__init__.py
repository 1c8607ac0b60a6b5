"""What clients of the server talk to: the front door, the opening of sessions, the control-plane
API.
"""
