"""The page for browsers: what a server or a manager shows, and the orders of its operators."""
