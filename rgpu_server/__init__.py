"""The GPU node: a daemon that decides, and worker processes that execute."""
