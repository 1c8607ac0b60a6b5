"""Many nodes: one pool of cards, and one decision for each request."""
