"""A plan: a template on the node, and what its runs return on the client."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from rgpu_client.torch import infer as inference
from rgpu_client.torch.nodes import nodes
from rgpu_client.torch.package import check_release, kind_of, torch
from rgpu_client.torch.storages import (
    Form,
    View,
    adopt,
    described,
    dtype_named,
    extent,
    id_of,
    name_of,
    record_of,
    seen,
    view_of,
)
from rgpu_common.arrays.messages import UNKNOWN_OUTPUTS, Tag

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from rgpu_client.arrays.ahead import Template
    from rgpu_client.arrays.issuer import Issuer
    from rgpu_client.torch.spec import Spec


# The default dtype that the node of each session was told.
_defaults: weakref.WeakKeyDictionary[Issuer, Any] = weakref.WeakKeyDictionary()


class Plan:
    """Runs a template whose results have known forms."""

    __slots__ = ("issuer", "template")

    def __init__(self, issuer: Issuer, template: Template) -> None:
        self.issuer = issuer
        self.template = template

    def run(
        self, slots: Sequence[Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Issues the operation and returns what the operator returns."""
        raise NotImplementedError


class _One(Plan):
    """Returns one new tensor."""

    __slots__ = ("_form",)

    def __init__(self, issuer: Issuer, template: Template, view: View) -> None:
        self._form = Form(view)
        super().__init__(issuer, template.sized([self._form.size]))

    def run(self, slots: Any, arguments: Any, keywords: Any) -> Any:
        issuer = self.issuer
        made = issuer.new_id()
        issuer.run(self.template, slots, (made,))
        return self._form.adopt(issuer, made)


class _InPlace(Plan):
    """Changes its first argument and returns it."""

    __slots__ = ()

    def run(self, slots: Any, arguments: Any, keywords: Any) -> Any:
        self.issuer.run(self.template, slots, ())
        return arguments[0]


class _Several(Plan):
    """Returns several new tensors."""

    __slots__ = ("_forms",)

    def __init__(self, issuer: Issuer, template: Template, views: Sequence[View]) -> None:
        self._forms = [Form(view) for view in views]
        super().__init__(issuer, template.sized([form.size for form in self._forms]))

    def run(self, slots: Any, arguments: Any, keywords: Any) -> Any:
        issuer, forms = self.issuer, self._forms
        ids = [issuer.new_id() for _ in forms]
        issuer.run(self.template, slots, ids)
        if not forms:
            return None
        return tuple([form.adopt(issuer, made) for form, made in zip(forms, ids, strict=True)])


class _Many(Plan):
    """Returns new tensors, lists of them, and arguments; may change the sizes of arguments."""

    __slots__ = ("_forms", "_inferred")

    def __init__(self, issuer: Issuer, template: Template, inferred: inference.Inferred) -> None:
        self._inferred = inferred
        self._forms = [Form(view) for view in _new(inferred.results)]
        super().__init__(issuer, template.sized([form.size for form in self._forms]))

    def run(self, slots: Any, arguments: Any, keywords: Any) -> Any:
        issuer, inferred, forms = self.issuer, self._inferred, self._forms
        places = list(_tensors([*arguments, *keywords.values()]))
        for at, view in inferred.changed:
            _take_room(places[at], view)
        ids = [issuer.new_id() for _ in forms]
        issuer.run(self.template, slots, ids)
        pairs = zip(forms, ids, strict=True)
        made = iter([form.adopt(issuer, one) for form, one in pairs])
        for at, view in inferred.changed:
            reshape(places[at], view)
        results = [self._result(one, made, places) for one in inferred.results]
        return results[0] if len(results) == 1 else tuple(results) if results else None

    def _result(self, one: Any, made: Iterator[Any], places: Sequence[Any]) -> Any:
        if one is None:
            return None
        if isinstance(one, inference.At):
            return places[one.place]
        if isinstance(one, list):
            return [None if part is None else next(made) for part in one]
        return next(made)


class _Unknown(Plan):
    """Waits for the operation, because only the node knows the forms of its results."""

    __slots__ = ("_schema",)

    def __init__(self, issuer: Issuer, template: Template, schema: Any) -> None:
        super().__init__(issuer, template)
        self._schema = schema

    def run(self, slots: Any, arguments: Any, keywords: Any) -> Any:
        issuer, schema = self.issuer, self._schema
        fresh = [one for one in schema.returns if not _changes(one)]
        results = self._fetch(issuer, slots) if fresh else self._execute(issuer, slots)
        changed = self._changed(arguments, keywords)
        for one in changed:
            told = issuer.describe([id_of(one)])[0]
            record = record_of(one)
            issuer.grown(record.base, max(0, told[-1] - max(record.size, record.held)))
            reshape(one, _told(told))
        if len(schema.returns) == 1 and fresh and "List[" in str(schema.returns[0].type):
            return results
        new, old = iter(results), iter(changed)
        given = [next(old) if _changes(one) else next(new) for one in schema.returns]
        return given[0] if len(given) == 1 else tuple(given) if given else None

    def _execute(self, issuer: Issuer, slots: Any) -> list[Any]:
        issuer.run(self.template, slots, ())
        return []

    def _fetch(self, issuer: Issuer, slots: Any) -> list[Any]:
        several = issuer.new_id()
        issuer.run(self.template, slots, (several,))
        try:
            parts = issuer.describe([several])[0]["list"]
            return [_part(issuer, several, at, one) for at, one in enumerate(parts)]
        finally:
            issuer.free(several)

    def _changed(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """Returns the tensors that the operator changes, in the order of its results."""
        declared = self._schema.arguments
        named = {one.name: keywords.get(one.name) for one in declared if _changes(one)}
        for one, value in zip(declared, arguments, strict=False):
            if one.name in named and not one.kwarg_only:
                named[one.name] = value
        return [one for one in named.values() if isinstance(one, torch.Tensor)]


def make_plan(
    issuer: Issuer,
    key: Hashable,
    spec: Spec,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Plan:
    """Returns a plan for an operator with arguments of these forms.

    Raises:
        NotImplementedError: an argument cannot be sent.
    """
    check_release(issuer)
    key = (key, _default(issuer))
    positional, named = nodes(arguments, keywords, spec.floats)
    schema = spec.operator._schema
    inferred = None
    if not spec.waits:
        inferred = inference.infer(spec.operator, arguments, keywords)
    if inferred is None:
        outputs = UNKNOWN_OUTPUTS if any(not _changes(one) for one in schema.returns) else 0
        template = issuer.template((key, None), spec.name, positional, named, outputs)
        return _Unknown(issuer, template, schema)
    named["="] = [Tag.LIBRARY, "results", ";".join(_layouts(inferred.results))]
    count = len(list(_new(inferred.results)))
    template = issuer.template((key, count), spec.name, positional, named, count)
    if not inferred.changed and len(inferred.results) == 1:
        only = inferred.results[0]
        if isinstance(only, tuple):
            return _One(issuer, template, only)
        if only == inference.At(0) and arguments and isinstance(arguments[0], torch.Tensor):
            return _InPlace(issuer, template)
    elif not inferred.changed and all(isinstance(one, tuple) for one in inferred.results):
        return _Several(issuer, template, inferred.results)
    return _Many(issuer, template, inferred)


def _default(issuer: Issuer) -> Any:
    """Returns the default dtype, which the node has from here on too: divisions of integers have
    it, and tensors that are made of numbers.
    """
    default = torch.get_default_dtype()
    if _defaults.get(issuer, torch.float32) is not default:
        node = [Tag.DTYPE, name_of(default)]
        template = issuer.template(("default", default), "rgpu::default_dtype", [node], {}, 0)
        issuer.run(template, (), ())
        _defaults[issuer] = default
    return default


def uploaded(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the arguments of an operator that indexes. Moves indices of the CPU to the device.

    Raises:
        RuntimeError: what is indexed is not on the device, so a write would be lost.
    """
    indexed, indices, *rest = arguments
    if kind_of(indexed.device) != "rgpu":
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({indexed.device})"
        )
    return (indexed, _upload(indices), *rest)


def reshape(tensor: Any, view: View) -> None:
    """The node has given a tensor other sizes or strides, and perhaps a larger storage."""
    dtype, shape, stride, offset, bits = view
    record, old = record_of(tensor), view_of(tensor)
    if old == view:
        return
    object_id = record.find(old)
    del record.ids[old]
    offset = old[3] if offset == 0 else offset
    record.ids[(dtype, shape, stride, offset, bits)] = object_id
    record.size = max(record.size, _end(tensor, view))
    tensor.data = seen(tensor, shape, stride, offset)


def _take_room(tensor: Any, view: View) -> None:
    """Takes room for the larger storage that the node will give a tensor with this view.

    Raises:
        torch.OutOfMemoryError: the lease has none.
    """
    record = record_of(tensor)
    there = max(record.size, record.held)
    size = _end(tensor, view)
    if size > there:
        record.issuer.grow(record.base, size - there)


def _end(tensor: Any, view: View) -> int:
    """Returns where a new view of a tensor ends in its storage, in bytes."""
    dtype, shape, stride, offset, _ = view
    return int(((offset or tensor.storage_offset()) + extent(shape, stride)) * dtype.itemsize)


def _upload(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_upload(one) for one in value]
    if isinstance(value, torch.Tensor) and kind_of(value.device) == "cpu" and value.dim():
        return value.to("rgpu")
    return value


def _changes(part: Any) -> bool:
    return part.alias_info is not None and bool(part.alias_info.is_write)


def _new(results: Sequence[Any]) -> Iterator[View]:
    """The views of the new tensors among results."""
    for one in results:
        if isinstance(one, list):
            yield from (part for part in one if part is not None)
        elif isinstance(one, tuple):
            yield one


def _layouts(results: Sequence[Any]) -> Iterator[str]:
    for one in results:
        if isinstance(one, list):
            yield from _layouts(one)
        elif one is None:
            yield "-"
        elif isinstance(one, tuple):
            yield described(*one[:3])


def _tensors(values: Sequence[Any]) -> Iterator[Any]:
    """The tensors among arguments, in the order in which the inference counts them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if kind_of(value.device) != "cpu" or value.dim():
                yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _told(told: Sequence[Any]) -> View:
    dtype, shape, stride, offset, bits, _ = told
    return (dtype_named(dtype), torch.Size(shape), tuple(stride), offset, bits)


def _part(issuer: Issuer, several: int, at: int, told: Any) -> Any:
    """Returns what one description of a result stands for."""
    if told is None:
        return None
    if isinstance(told, dict):
        if "list" in told:
            raise NotImplementedError("an operator that returns lists of lists")
        return complex(*told["complex"]) if "complex" in told else told["value"]
    made = issuer.new_id()
    item = issuer.template("item", "rgpu::item", [[Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]], {}, 1)
    issuer.run(item, (several, at), (made,))
    tensor = adopt(issuer, made, _told(told))
    record_of(tensor).size = told[-1]
    issuer.grown(made, told[-1])
    return tensor
