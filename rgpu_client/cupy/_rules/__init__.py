"""What functions return, as NumPy's rules say it: shapes and dtypes without asking the node.

A rule takes the arguments of the call. It returns a Meta, a list or tuple of them, NOTHING, or ASK;
it raises what NumPy raises for wrong arguments, and Unsure where it does not cover the arguments.
"""
