"""Where leases begin and end in the record, which otherwise has a sample of each second.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.observe.record import Sample
    from rgpu_server.observe.totals import Amounts


class Edges:
    """What came and went since the last samples were taken: without it the use before a lease's
    first sample and after its last one would be in the totals and not in the record.
    """

    def __init__(self) -> None:
        self.since_ms = 0
        self._first: list[Sample] = []
        self._last: list[Sample] = []
        self._newest: dict[str, Sample] = {}

    def came(self, lease: str, sample: Sample, now_ms: int) -> None:
        """A lease begins; its totals are those of `sample`."""
        if not self._first:
            self.since_ms = now_ms
        self._first.append(sample)
        self._newest[lease] = sample

    def seen(self, lease: str, sample: Sample) -> None:
        """A sample of a lease that goes on."""
        self._newest[lease] = sample

    def went(self, lease: str, total: Amounts, seams: int) -> None:
        """A lease has ended with these totals; one that has no sample leaves none."""
        newest = self._newest.pop(lease, None)
        if newest is not None:
            self._last.append(
                newest._replace(
                    device_ns=total.device_ns,
                    waiting_ns=total.waiting_ns,
                    throttled_ns=total.throttled_ns,
                    launches=total.launches,
                    copied_bytes=total.copied_bytes,
                    memory_used=0,
                    share_1s_ppm=0,
                    seams=newest.seams | seams,
                )
            )

    def take_first(self) -> list[Sample]:
        """Returns the samples of since_ms, once."""
        first, self._first = self._first, []
        return first

    def take_last(self) -> list[Sample]:
        """Returns the samples of leases that have ended, once."""
        last, self._last = self._last, []
        return last
