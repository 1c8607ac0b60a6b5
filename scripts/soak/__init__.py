"""`make soak`: the long counts, in parts that run one by one, and the page of their last runs.

`parts` has each part as data, `results` keeps what came of its last run and writes the page, and
`__main__` is the command, which runs parts.
"""
