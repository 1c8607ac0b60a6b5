"""`cupy.cuda.stream`: streams and events. Operations of a session are in one order anyway."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

from rgpu_client.cupy import errors
from rgpu_client.cupy._session import session

if TYPE_CHECKING:
    from typing_extensions import Self


class Stream:
    """A stream. All streams of a session are one order of operations."""

    null: Stream
    ptds: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: Any = None,
    ) -> None:
        self.non_blocking = non_blocking
        self.priority = priority

    def __enter__(self) -> Self:
        _streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _streams.remove(self)

    @property
    def ptr(self) -> NoReturn:
        """There is no address here."""
        raise AttributeError("a stream of a GPU node has no address in this process")

    @property
    def done(self) -> bool:
        """Whether everything before is done. Waits for it."""
        self.synchronize()
        return True

    def use(self) -> Stream:
        """Makes this the current stream."""
        _streams[:] = [self]
        return self

    def synchronize(self) -> None:
        """Waits until everything issued before is done."""
        session().issuer.sync()

    def record(self, event: Any = None) -> Event:
        """Records an event."""
        made: Event = event if event is not None else Event()
        made.record(self)
        return made

    def wait_event(self, event: Any) -> None:
        """Is in order already."""

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        """Waits until everything before is done, and calls a function."""
        self.synchronize()
        callback(arg)

    def add_callback(self, callback: Any, arg: Any) -> None:
        """Waits until everything before is done, and calls a function."""
        self.synchronize()
        callback(self, 0, arg)


class ExternalStream:
    """Refused: there is no stream of this process on the node."""

    def __init__(self, *_: Any) -> None:
        raise NotImplementedError("a stream of this process does not exist on the GPU node")


class Event:
    """A place in the order of operations. Its time is when everything before it was done, as this
    process sees it: the client waits for the node to know it.
    """

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("events of a GPU node cannot be shared between processes")
        self._timing = not disable_timing
        self.time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Records the place. Waits for what is before if the event measures time."""
        if self._timing:
            session().issuer.sync()
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Waits until everything before is done."""
        session().issuer.sync()

    @property
    def done(self) -> bool:
        """Whether everything before is done. Waits for it."""
        self.synchronize()
        return True


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Returns the milliseconds between two events."""
    if start_event.time is None or end_event.time is None:
        raise errors.CUDARuntimeError("cudaErrorInvalidResourceHandle: an event was not recorded")
    return (end_event.time - start_event.time) * 1000


def get_current_stream(device_id: int = -1) -> Stream:
    """Returns the current stream."""
    return _streams[-1] if _streams else Stream.null


_streams: list[Stream] = []
Stream.null = Stream(null=True)
Stream.ptds = Stream(ptds=True)
