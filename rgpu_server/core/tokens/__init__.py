"""Which lease may use one device now: events in, actions out.  Pure: no I/O, no clock.

`TokenScheduler.handle(event, now_ns)` is the whole interface; DESIGN.md beside this file has the
algorithm, its bounds and its edge cases.
"""
