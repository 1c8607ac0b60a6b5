"""Who may use one device now: events in, actions out.  Nothing here does I/O or reads a clock.

`TokenScheduler.handle(event, now_ns)` is the whole interface; DESIGN.md beside this file has the
algorithm, its bounds and its edge cases.
"""
