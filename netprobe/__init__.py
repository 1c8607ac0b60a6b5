"""The network probe: measures the paths between a client and a server, and chooses one.

Pure modules: estimate.py (statistics), plan.py (what to send next), cost.py (the cost model),
choice.py (ranking, inertia), candidates.py (which paths there may be). C++ moves the bytes
(native.py) over the same connections that programs use. prober.py measures one path, survey.py all
paths.
"""
