"""Decisions of the daemon: events in, actions out. Nothing here does I/O or reads a clock.

`Node.handle(event, now)` is the whole interface; DESIGN.md beside this file has the lifecycles.
"""
