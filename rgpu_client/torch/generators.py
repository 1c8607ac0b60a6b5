"""Random numbers: seeds and generators of the node.

The node has a generator that operators use by default, and one for each `torch.Generator` of this
device. Seeds travel in the order of the operations.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from rgpu_client.torch import storages
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.session import session
from rgpu_common.arrays.messages import Tag

if TYPE_CHECKING:
    from rgpu_client.arrays.issuer import Issuer

_Plain = torch.Generator
_OBJECT, _VALUE = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]
_DEFAULT_SEED = 67280421310721

# A generator loses its Python type on its way through the dispatcher, but keeps `_cdata`.
_known: weakref.WeakValueDictionary[int, RemoteGenerator] = weakref.WeakValueDictionary()


class RemoteGenerator(_Plain):  # type: ignore[misc,valid-type]
    """A `torch.Generator` of this device."""

    def __new__(cls, device: Any = None) -> Any:
        return _Plain.__new__(cls, "cpu")

    def __init__(self, device: Any = None) -> None:
        self._seed: int | None = _DEFAULT_SEED
        self._issuer = issuer = session.current()
        self._id = issuer.new_id()
        template = issuer.template("generator", "rgpu::generator", [_VALUE], {}, 1)
        issuer.run(template, (_DEFAULT_SEED,), (self._id,))
        _known[self._cdata] = self

    @property
    def device(self) -> Any:
        """This device."""
        return torch.device("rgpu", 0)

    def manual_seed(self, seed: int) -> RemoteGenerator:
        """See `torch.Generator.manual_seed`."""
        self._seed = unsigned(seed)
        _seed(session.current(), self._id, self._seed)
        return self

    def seed(self) -> int:
        """See `torch.Generator.seed`."""
        chosen: int = _Plain().seed()
        self.manual_seed(chosen)
        return chosen

    def initial_seed(self) -> int:
        """See `torch.Generator.initial_seed`."""
        if self._seed is None:
            self._seed = _seed_in(get_state(self._id))
        return self._seed

    def get_state(self) -> Any:
        """Returns the state, which lies in the memory of the CPU."""
        return get_state(self._id)

    def set_state(self, state: Any) -> RemoteGenerator:
        """See `torch.Generator.set_state`."""
        self._seed = None
        set_state(state, self._id)
        return self

    def clone_state(self) -> RemoteGenerator:
        """Returns a generator with the same state."""
        return RemoteGenerator().set_state(self.get_state())

    def __del__(self) -> None:
        if hasattr(self, "_id"):
            self._issuer.free(self._id)

    def __reduce__(self) -> Any:
        raise TypeError("a generator of the device rgpu cannot be saved; save its get_state()")


class _Choosing(type(_Plain)):  # type: ignore[misc]
    """Makes `torch.Generator("rgpu")` one of this device, and others PyTorch's own."""

    def __call__(cls, device: Any = "cpu") -> Any:
        chosen = torch.device(device)
        return RemoteGenerator() if kind_of(chosen) == "rgpu" else _Plain(chosen)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Plain)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, _Plain)


def id_of(generator: Any, issuer: Any) -> int:
    """Returns the object of a generator.

    Raises:
        RuntimeError: it is none of this device, or of an earlier session.
    """
    known = generator if isinstance(generator, RemoteGenerator) else _known.get(generator._cdata)
    if known is None:
        raise RuntimeError("Expected a 'rgpu' device type for generator but found 'cpu'")
    if known._issuer is not issuer:
        raise RuntimeError(
            "a generator belongs to an earlier session with a GPU node; make it anew"
        )
    return known._id


class _Default:
    """The generator that operators use by default."""

    def __init__(self) -> None:
        self._given: int | None = None
        # None: only the node knows, because nothing was given, or a state.
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        """Seeds it in the session, and in a session that is opened later.

        A forked child does not have the session. A worker of a `DataLoader` is one, and seeds.
        """
        self._given = self._seed = unsigned(seed)
        if session.issuer is not None and not session.issuer.forked:
            self.begin(session.issuer)

    def initial_seed(self) -> int:
        """Returns the seed that was given, or that the node's generator began with."""
        if self._seed is None:
            self._seed = _seed_in(get_state())
        return self._seed

    def set_state(self, state: Any) -> None:
        """Sets the state, which has a seed of its own."""
        self._seed = None
        set_state(state)

    def begin(self, issuer: Issuer) -> None:
        """Seeds it in a new session as the program has said before."""
        self._seed = self._given
        if self._given is not None:
            _seed(issuer, None, self._given)


default = _Default()


def unsigned(seed: Any) -> int:
    """Returns a seed as PyTorch keeps it: -1 is 0xffff_ffff_ffff_ffff.

    Raises:
        ValueError: it has more than 64 bits.
    """
    found: int = _Plain().manual_seed(seed).initial_seed()
    return found


def _seed_in(state: Any) -> int:
    """A state begins with its seed, the CPU's and a GPU's."""
    return int.from_bytes(bytes(state[:8].tolist()), sys.byteorder)


def get_state(generator: int | None = None) -> Any:
    """Returns the state of a generator in the memory of the CPU; None: the default one's."""
    issuer = session.current()
    made = issuer.new_id()
    node = None if generator is None else _OBJECT
    template = issuer.template(("state", generator is None), "rgpu::get_state", [node], {}, 1)
    issuer.run(template, () if generator is None else (generator,), (made,))
    _, shape, _, _, _, _ = issuer.describe([made])[0]
    return storages.adopt(issuer, made, (torch.uint8, torch.Size(shape), (1,), 0, 0)).cpu()


def set_state(state: Any, generator: int | None = None) -> None:
    """Sets the state of a generator. It takes a state in the memory of the CPU."""
    issuer = session.current()
    sent = state.to("rgpu")
    node = None if generator is None else _OBJECT
    key = ("set state", generator is None)
    template = issuer.template(key, "rgpu::set_state", [node, _OBJECT], {}, 0)
    known = () if generator is None else (generator,)
    issuer.run(template, (*known, storages.id_of(sent)), ())


def install() -> None:
    """Makes `torch.Generator` know this device."""
    chosen = _Choosing("Generator", (_Plain,), {"__doc__": _Plain.__doc__, "__module__": "torch"})
    torch.Generator = chosen
    session.begun = default.begin


def _seed(issuer: Issuer, generator: int | None, seed: int) -> None:
    node = None if generator is None else _OBJECT
    template = issuer.template(("seed", generator is None), "rgpu::seed", [node, _VALUE], {}, 0)
    issuer.run(template, (seed,) if generator is None else (generator, seed), ())
