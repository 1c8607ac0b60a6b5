"""A discrete-event simulation of one device and its workers, which drives the real scheduler."""
