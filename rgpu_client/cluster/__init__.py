"""Programs on a cluster: asks its manager for cards, or chooses one of several servers itself."""
