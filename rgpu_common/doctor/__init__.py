"""`rgpu doctor`: looks at a machine and says what is wrong, with the remedy.

The rooms of client and node each bring their checks, by an entry point of the group
`rgpu.doctors`.
"""
