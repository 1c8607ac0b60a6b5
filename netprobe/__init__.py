"""The network probe: measures what lies between a client and a server, and chooses a path.

Pure: estimate.py (statistics), plan.py (what to send next), cost.py (the cost model), choice.py
(ranking, inertia), candidates.py (which paths there may be).  The bytes are moved by C++
(native.py) over the same connections that programs use; prober.py measures one path, survey.py all
of them.
"""
