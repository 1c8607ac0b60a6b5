"""The array seam: what a program's arrays and the worker that holds them say to each other."""
