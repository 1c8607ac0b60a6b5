"""Random operations of the array seam against a server, with a neighbour that must not notice."""
