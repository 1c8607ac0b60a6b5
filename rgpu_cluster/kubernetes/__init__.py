"""rgpu on Kubernetes: the agent of a GPU node, and the manager's front for pods and claims."""
