"""The kinds of values that only the server's configuration has (`rgpu_common.keys.Kind`)."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.endpoints import Endpoint, TcpEndpoint, parse_endpoint, parse_listener
from rgpu_common.errors import UsageError
from rgpu_common.key_kinds import Text
from rgpu_common.keys import Kind, T, fill, toml
from rgpu_common.mig import check_profile
from rgpu_common.units import format_bytes, parse_bytes
from rgpu_server.core.isolation import OPTIONAL

if TYPE_CHECKING:
    from rgpu_common.config import Table
    from rgpu_common.keys import Option

EMULATED_BYTES = 8 << 30
# Eight GPUs that are cut into seven slices each.
MAX_DEVICES = 64
# Its addresses, with the gaps between allocations, lie in a band of 1 TiB.
MAX_EMULATED_BYTES = 512 << 30

_CUDA = re.compile(r"cuda:([0-9]{1,3})")
_TIMING = re.compile(r"normal|hostile(?::[0-9]{1,18})?")
_SLICE = re.compile(r"cuda:(MIG-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})")
_DEVICES = "emulated, emulated:8GiB, emulated:8GiB,mig=1g.10gb, cuda, cuda:0 or cuda:MIG-UUID"


class DeviceSpec(Struct, frozen=True):
    """A device as asked for.  memory_bytes and mig, the profile of a MIG slice, are for an emulated
    one; ordinal is for a GPU of the driver, uuid for a MIG slice of the driver.  every: all GPUs
    and MIG slices that the machine turns out to have.
    """

    kind: str
    memory_bytes: int = 0
    ordinal: int = 0
    mig: str = ""
    uuid: str = ""
    every: bool = False

    def __str__(self) -> str:
        """As `--device` takes it."""
        if self.every:
            return self.kind
        if self.kind == "cuda":
            return f"cuda:{self.uuid or self.ordinal}"
        size = f":{format_bytes(self.memory_bytes).replace(' ', '')}" if self.memory_bytes else ""
        return f"{self.kind}{size}{',mig=' if self.mig else ''}{self.mig}"


class _Parsed(Kind[T]):
    """A list of texts, which together have a meaning; the default stands for an absent key."""

    @property
    def accepted(self) -> str:
        return f"list of {self.word}"

    @abstractmethod
    def parse(self, texts: tuple[str, ...]) -> T:
        """Returns what the texts mean; UsageError says what is accepted."""

    def read(self, table: Table, name: str, default: T) -> T:
        if not table.has(name):
            return default
        texts = tuple(table.texts(name, []))
        try:
            return self.parse(texts)
        except UsageError as error:
            raise table.refuse(name, str(error)) from None

    def skip(self, table: Table, name: str, default: T) -> None:
        del default
        table.texts(name, [])

    def said(self, option: Option, value: Any) -> T:
        del option
        return self.parse(tuple(value))


class Listeners(_Parsed["tuple[Endpoint, ...]"]):
    """Addresses on which a server listens."""

    word = "`HOST:PORT`, `tls:HOST:PORT`, `ucx:HOST:PORT`, `grpc[s]:HOST:PORT` or `unix:/PATH`"

    def parse(self, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
        return tuple(parse_listener(text) for text in texts)

    def written(self, value: tuple[Endpoint, ...]) -> str:
        return toml([str(endpoint) for endpoint in value])


class Devices(_Parsed["tuple[DeviceSpec, ...]"]):
    """Devices that a server serves."""

    word = "`emulated[:8GiB][,mig=PROFILE]`, `cuda`, `cuda:N` or `cuda:MIG-UUID`"

    def parse(self, texts: tuple[str, ...]) -> tuple[DeviceSpec, ...]:
        return parse_devices(texts)


class Measures(_Parsed["frozenset[str]"]):
    """Measures of isolation that a server may do without."""

    word = ", ".join(f"`{name}`" for name in OPTIONAL)

    def parse(self, texts: tuple[str, ...]) -> frozenset[str]:
        for name in texts:
            if name not in OPTIONAL:
                raise UsageError(
                    f"{name!r} is no measure that a server can do without: {', '.join(OPTIONAL)}"
                )
        return frozenset(texts)

    def said(self, option: Option, value: Any) -> frozenset[str]:
        try:
            return self.parse(tuple(name.strip() for name in value.split(",") if name.strip()))
        except UsageError as error:
            raise UsageError(f"{option.flag}: {error}") from None


class MetricsAddress(Kind["TcpEndpoint | None"]):
    """HOST:PORT; "" is None."""

    accepted = "`HOST:PORT`"

    def read(self, table: Table, name: str, default: TcpEndpoint | None) -> TcpEndpoint | None:
        del default
        return self._parse(table.text(name, ""))

    def skip(self, table: Table, name: str, default: TcpEndpoint | None) -> None:
        del default
        table.text(name, "")

    def said(self, option: Option, value: Any) -> TcpEndpoint | None:
        del option
        return self._parse(value)

    def _parse(self, text: str) -> TcpEndpoint | None:
        if not text:
            return None
        endpoint = parse_endpoint(text)
        if type(endpoint) is not TcpEndpoint or not text.endswith(f":{endpoint.port}"):
            # Without a port it would be the one that sessions use.
            raise UsageError(f"metrics: {text!r} is not HOST:PORT")
        return endpoint


class Timing(Text):
    """How an emulated device orders its work."""

    accepted = '`"normal"`, `"hostile"` or `"hostile:SEED"`'

    def read(self, table: Table, name: str, default: str) -> str:
        timing = super().read(table, name, default)
        if not _TIMING.fullmatch(timing):
            raise table.refuse(name, f"{timing!r} is not normal, hostile or hostile:SEED")
        return timing


class Cgroup(Text):
    """ "auto", "off", or the path of a folder."""

    def read(self, table: Table, name: str, default: str) -> str:
        return table.path(name, default, words=("auto", "off"))


class Pools(Kind["dict[str, tuple[int, ...]]"]):
    """A table: name of a pool -> ordinals of its devices."""

    accepted = "list of device numbers"

    def read(
        self, table: Table, name: str, default: dict[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        del default
        inner = table.table(name)
        pools = {pool: tuple(inner.integers(pool)) for pool in inner.names()}
        seen: dict[int, str] = {}
        for pool, ordinals in pools.items():
            for ordinal in ordinals:
                if seen.setdefault(ordinal, pool) != pool:
                    reason = f"device {ordinal} is in the pool {seen[ordinal]!r} already"
                    raise inner.refuse(pool, reason)
        return pools


@dataclass(frozen=True)
class Each(Kind["dict[str, T]"]):
    """A table of tables: a name -> the keys of the dataclass `of`."""

    of: type[T]

    accepted = "table"

    def read(self, table: Table, name: str, default: dict[str, T]) -> dict[str, T]:
        del default
        return {each: fill(self.of, inner) for each, inner in table.table(name).tables()}


def parse_devices(texts: tuple[str, ...]) -> tuple[DeviceSpec, ...]:
    """Returns the devices that `texts` ask for, in order; UsageError if one is not understood."""
    if not 1 <= len(texts) <= MAX_DEVICES:
        raise UsageError(f"a server has 1 to {MAX_DEVICES} devices, asked for are {len(texts)}")
    devices = tuple(_device(text) for text in texts)
    slices = [device.uuid for device in devices if device.uuid]
    if len(set(slices)) < len(slices):
        raise UsageError("a MIG slice is named twice: each is one device")
    return devices


def _device(text: str) -> DeviceSpec:
    described, comma, more = text.partition(",")
    kind, colon, size = described.partition(":")
    if kind == "emulated":
        mig = _emulated_slice(text, more) if comma else ""
        memory = _emulated_bytes(text, size) if colon else EMULATED_BYTES
        if memory < 1 << 20:
            raise UsageError(f"{text!r}: an emulated device needs at least 1MiB")
        if memory > MAX_EMULATED_BYTES:
            raise UsageError(
                f"{text!r}: an emulated device has at most {format_bytes(MAX_EMULATED_BYTES)}"
            )
        return DeviceSpec("emulated", memory_bytes=memory, mig=mig)
    if text == "cuda":
        return DeviceSpec("cuda", every=True)
    slice_of = _SLICE.fullmatch(text)
    if slice_of is not None:
        return DeviceSpec("cuda", uuid=slice_of[1])
    match = _CUDA.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a device: write {_DEVICES}")
    return DeviceSpec("cuda", ordinal=int(match[1]))


def _emulated_slice(text: str, more: str) -> str:
    """Returns the profile in "mig=1g.10gb"."""
    name, _, profile = more.partition("=")
    if name != "mig":
        raise UsageError(f"{text!r} is not a device: write {_DEVICES}")
    try:
        return check_profile(profile)
    except UsageError as error:
        raise UsageError(f"{text!r} is not a device: {error}") from None


def _emulated_bytes(text: str, size: str) -> int:
    try:
        return parse_bytes(size)
    except UsageError as error:
        raise UsageError(f"{text!r} is not a device: {error}") from None
