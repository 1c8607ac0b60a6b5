"""Checks that data modules hold only rows: a docstring, imports from cudaspec.model or
cudaspec.message, names bound to literals.
"""

from __future__ import annotations

import ast
from pathlib import Path

from cudaspec.rows import SpecError

PACKAGE = Path(__file__).parent
FOLDERS = ("calls", "commands", "messages", "types")


def check_package() -> None:
    """Checks every data module of this package."""
    paths = [p for folder in FOLDERS for p in sorted((PACKAGE / folder).glob("*.py"))]
    for path in paths:
        check_source(path.read_text(encoding="utf-8"), f"{path.parent.name}/{path.name}")


def check_source(text: str, name: str) -> None:
    """Raises SpecError if the module `name` with source `text` contains more than data."""
    tree = ast.parse(text)
    imported: set[str] = set()
    for position, statement in enumerate(tree.body):
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if position == 0:
                continue
            case ast.ImportFrom(module="cudaspec.model" | "cudaspec.message"):
                imported |= {alias.name for alias in statement.names}
            case ast.Assign(targets=[ast.Name()], value=value):
                _literal(value, imported, name)
            case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value):
                _literal(value, imported, name)
            case _:
                raise SpecError(_sentence(name, statement))


def _literal(node: ast.expr, imported: set[str], name: str) -> None:
    """Accepts a literal, or a row of cudaspec.model made of literals; raises SpecError
    otherwise.
    """
    children: list[ast.expr]
    match node:
        case ast.Constant():
            return
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return
        case ast.Attribute(value=ast.Name(id=owner)) if owner in imported:
            return
        case ast.List(elts=children) | ast.Tuple(elts=children):
            pass
        case ast.Dict(keys=keys, values=values):
            children = [key for key in keys if key is not None] + values
            if None in keys:
                raise SpecError(_sentence(name, node))
        case ast.Call(func=ast.Name(id=row), args=args, keywords=keywords) if row in imported:
            children = [*args, *(k.value for k in keywords)]
        case _:
            raise SpecError(_sentence(name, node))
    for child in children:
        _literal(child, imported, name)


def _sentence(name: str, node: ast.AST) -> str:
    line = getattr(node, "lineno", 0)
    kind = type(node).__name__
    return f"{name}:{line}: a data module holds only rows of literals; {kind} is logic."
