"""Random PTX, run on the emulated device of a server and compared with an interpreter."""
