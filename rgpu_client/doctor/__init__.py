"""The checks of a client for `rgpu doctor`."""
