"""Runs in the background of the client's machine: `rgpu run --detach`, `attach` and `wait`."""
