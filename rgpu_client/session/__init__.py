"""Prepares a program's session: claims its lease, chooses its path to the server, and starts the
agents that run beside the program.
"""
