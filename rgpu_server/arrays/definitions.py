"""The templates of a session: operations that are defined once and run often."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rgpu_common.arrays.messages import MOST_PARTS, MOST_TEMPLATES, Failure
from rgpu_server.arrays.forms import check, check_id
from rgpu_server.arrays.library import NotOfferedError
from rgpu_server.arrays.templates import Builder, MalformedError, Template

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.arrays.library import Library

log = logging.getLogger("rgpu.arrays")

# Operations that cannot be prepared are a defect of this side's. A client can name them for ever.
_MOST_LOGGED = 16


class Poison:
    """Stands for what failed: an operation's results, or a template."""

    __slots__ = ("failure",)

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Definitions:
    """A session's templates, by the client's numbers.

    failing: makes the failure of an exception and an operation's name.
    """

    def __init__(self, library: Library, failing: Callable[[Exception, str], Failure]) -> None:
        self._library = library
        self._failing = failing
        self._templates: dict[int, Template | Poison] = {}
        # How many parts the arguments of all templates have.
        self._parts = 0
        self._logged = 0

    def define(self, number: Any, name: Any, arguments: Any, keywords: Any, outputs: Any) -> None:
        """Prepares a template. If that fails, each of its runs does.

        Raises:
            MalformedError: no correct client sends that.
        """
        check_id(number)
        check(len(self._templates) < MOST_TEMPLATES, "too many templates")
        before = self._templates.get(number)
        builder = Builder(self._library, MOST_PARTS - self._parts + _parts(before))
        made: Template | Poison
        try:
            made = builder.build(name, arguments, keywords, outputs)
        except MalformedError:
            raise
        except Exception as error:
            made = Poison(self._refused(error, str(name)[:200]))
        self._templates[number] = made
        self._parts += _parts(made) - _parts(before)

    def forget(self, number: Any) -> None:
        """Forgets a template. Raises MalformedError: there is none of this number."""
        self.find(number)
        self._parts -= _parts(self._templates.pop(number))

    def find(self, number: Any) -> Template | Poison:
        """Returns a template. Raises MalformedError: there is none of this number."""
        template = self._templates.get(number) if type(number) is int else None
        if template is None:
            raise MalformedError("an unknown template")
        return template

    def _refused(self, error: Exception, name: str) -> Failure:
        failure = self._failing(error, name)
        if isinstance(error, NotOfferedError):
            return Failure("builtins.NotImplementedError", str(error), failure.number, name)
        # A defect for one operation must not end the session.
        if self._logged < _MOST_LOGGED:
            self._logged += 1
            log.exception("%s cannot be prepared", name)
        return failure


def _parts(template: Template | Poison | None) -> int:
    return template.parts if isinstance(template, Template) else 0
