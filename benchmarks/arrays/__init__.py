"""What arrays on a node cost, beside the same library on this machine."""
