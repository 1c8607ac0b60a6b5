"""A rule for `lint-imports` that it has not itself (pyproject.toml)."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING

from importlinter import Contract, ContractCheck, output

if TYPE_CHECKING:
    from grimp import ImportGraph


class NoCircles(Contract):
    """No module imports itself through others.

    `acyclic_siblings` takes a package for one module; ours import parts of each other.
    """

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        modules = sorted(graph.modules)
        imports = {m: sorted(graph.find_modules_directly_imported_by(m)) for m in modules}
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            circle = [*reversed(error.args[1])]
            lines = [_line(graph, importer, imported) for importer, imported in pairwise(circle)]
            return ContractCheck(kept=False, metadata={"lines": lines})
        return ContractCheck(kept=True)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Prints the circle, an import a line."""
        for line in check.metadata["lines"]:
            output.print_error(line)


def _line(graph: ImportGraph, importer: str, imported: str) -> str:
    details = graph.get_import_details(importer=importer, imported=imported)
    numbers = ", ".join(str(detail["line_number"]) for detail in details)
    return f"{importer} imports {imported} (l. {numbers})"
