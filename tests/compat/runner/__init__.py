"""`make compat`: runs the test suites of other programs over the wire and writes what came of it.

A program is one file of `rows/`.  `prepare` gives it an environment and its tests, `execute` runs
them, `judge` compares the failures with the row's reasons, and `page` writes the table.
"""
