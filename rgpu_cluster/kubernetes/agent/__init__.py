"""`rgpu agent-node`: between the server of a GPU node and Kubernetes."""
