"""Whether shares, caps and memory limits hold, how exactly, and what that costs."""
