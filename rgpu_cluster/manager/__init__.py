"""`rgpu manager`: carries out what `rgpu_cluster.core` decides, for nodes and clients over gRPC."""
