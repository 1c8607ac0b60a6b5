"""The checks of a GPU node for `rgpu doctor --node`."""
