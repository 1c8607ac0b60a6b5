"""Memory credit at the worker: what a client may do with it, and what it may not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from helpers.waiting import wait_until

from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import LEGACY, Client
from worker.leased import INVALID_VALUE, LIMIT, MIB, OUT_OF_MEMORY, leased
from worker.test_memory_lease import block_and_free, release, two
from worker.warm import LeasePage

PAGE = 4096
EIGHTH = LIMIT // 8


@dataclass
class Credit:
    """A client with credit, and what it knows of it."""

    client: Client
    wish: int = EIGHTH
    window: int = 0
    granted: int = 0

    def ask(self, size: int = PAGE, returned: int = 0) -> int:
        """Allocates by a call; the address."""
        values = self.client.call(
            "rgpuMemAllocAhead", bytes=size, returned=returned, wish=self.wish
        )
        self.window, self.granted = int(values["window"]), int(values["granted"])
        return int(values["dptr"])

    def back(self, offset: int, size: int) -> int:
        self.client.post("rgpuMemBack", dptr=self.window + offset, bytes=size)
        return self.window + offset

    def error(self) -> int:
        """The error that the commands posted so far have left."""
        return self.client.result("rgpuStreamSynchronize", stream=LEGACY).status

    def give_back(self, total: int) -> None:
        self.client.control.send(encode_message(Control.CREDIT_RETURN, {"returned": total}))


@contextmanager
def credited() -> Iterator[tuple[Credit, LeasePage]]:
    with leased() as (client, page):
        credit = Credit(client)
        credit.ask()
        yield credit, page


def test_credit_is_charged_but_counts_as_free() -> None:
    with credited() as (credit, page):
        assert credit.granted == EIGHTH
        assert page.charged() == EIGHTH + PAGE
        assert page.used() == PAGE
        assert credit.client.call("rgpuMemGetInfo")["free"] == LIMIT - PAGE
        credit.back(0, MIB)
        assert credit.client.call("rgpuMemGetInfo")["free"] == LIMIT - PAGE - MIB
        assert (page.used(), page.charged()) == (PAGE + MIB, EIGHTH + PAGE)


def test_backed_memory_is_memory() -> None:
    with credited() as (credit, _):
        place = credit.back(3 * PAGE, 10_000)
        data = random.Random(1).randbytes(10_000)
        credit.client.upload(place, data)
        assert credit.client.download(place, len(data)) == data
        credit.client.post("rgpuMemFree", dptr=place)
        fields, _ = credit.client.notice(Notice.MEMORY_CREDIT)
        assert fields == {"granted": EIGHTH + 3 * PAGE, "freed": credit.client.seq, "wanted": 0}
        assert (
            credit.client.result(
                "rgpuCopyDtoH", src=place, pitch=0, width=1, height=1, stream=LEGACY
            ).status
            == INVALID_VALUE
        )
        assert credit.client.download(credit.back(3 * PAGE, 10_000), 10_000) == bytes(10_000)


def test_a_client_uses_only_its_credit_and_its_window() -> None:
    with credited() as (credit, page):
        for offset, size in (
            (0, EIGHTH + 1),
            (-PAGE, PAGE),
            (-1, 2),
            (0, 0),
            (0, (1 << 64) - 1),
            (1 << 40, PAGE),
        ):
            credit.back(offset, size)
            assert credit.error() == INVALID_VALUE, (offset, size)
        credit.back(2 * PAGE, 2 * PAGE)
        assert credit.error() == 0
        for offset, size in ((2 * PAGE, PAGE), (0, 3 * PAGE), (4 * PAGE - 1, 1), (PAGE, PAGE + 1)):
            credit.back(offset, size)
            assert credit.error() == INVALID_VALUE, (offset, size)
        assert page.charged() == EIGHTH + PAGE


def test_what_is_returned_is_gone() -> None:
    with credited() as (credit, page):
        credit.give_back(EIGHTH - PAGE)
        wait_until(lambda: page.charged() == 2 * PAGE)
        credit.back(0, 2 * PAGE)
        assert credit.error() == INVALID_VALUE
        for total in (0, EIGHTH - PAGE, EIGHTH + 1, (1 << 64) - 1):
            credit.give_back(total)
        assert credit.error() == 0
        assert page.charged() == 2 * PAGE
        credit.back(0, PAGE)
        assert credit.error() == 0


def test_a_free_is_said_when_the_work_before_it_is_done() -> None:
    with credited() as (credit, page):
        client = credit.client
        flag, place = client.alloc(4096), credit.back(0, MIB)
        client.upload(flag, bytes(4))
        for stream in (20, 21):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.wait_value(20, flag, 1)
        client.post("rgpuMemFree", dptr=place)
        freed = client.seq
        assert client.result("rgpuPing", echo=1).status == 0
        assert not [n for n in client.notices if n[0] is Notice.MEMORY_CREDIT]
        credit.back(0, MIB)  # its addresses are not free either
        assert credit.error() == INVALID_VALUE
        client.write_value(21, flag, 1)
        fields, _ = client.notice(Notice.MEMORY_CREDIT)
        assert fields["freed"] == freed
        credit.back(0, MIB)
        assert credit.error() == 0
        assert page.used() == PAGE + 4096 + MIB


def test_a_context_takes_its_memory_along() -> None:
    with credited() as (credit, page):
        client = credit.client
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.post("rgpuMemBack", dptr=credit.window, bytes=MIB, context=11)
        assert client.result("rgpuContextDestroy", ctx=11, context=11).status == 0
        wait_until(lambda: page.charged() == EIGHTH - MIB + PAGE)
        credit.back(0, MIB)
        assert credit.error() == 0


def test_memory_for_a_context_that_is_gone_is_not_charged() -> None:
    with credited() as (credit, page):
        credit.client.post("rgpuMemBack", dptr=credit.window, bytes=MIB, context=99)
        assert credit.client.result("rgpuPing", echo=1).status == 0
        assert page.charged() == EIGHTH - MIB + PAGE
        credit.back(0, EIGHTH - MIB)
        assert credit.error() == 0


def one_is_in_time(attempt: Callable[[], int]) -> None:
    """Calls `attempt`, which returns a status, until it goes well.

    A worker waits a second for credit. On a busy machine that may end before this process has given
    it back, so one of several has to go well.
    """
    for _ in range(5):
        status = attempt()
        if status == 0:
            return
        assert status == OUT_OF_MEMORY
    raise AssertionError("none waited for the credit")


def test_another_process_gets_the_credit() -> None:
    def attempt() -> int:
        with two() as (holder, other, page):
            credit = Credit(holder)
            credit.ask()
            asked = other.post("rgpuMemAlloc", bytes=LIMIT - PAGE)
            fields, _ = holder.notice(Notice.MEMORY_CREDIT)
            assert fields["wanted"] == 1
            credit.give_back(credit.granted)
            status = other.wait(asked).status
            if status == 0:
                # Nothing is granted for a while, and nothing to a lease without room.
                assert page.used() == page.charged() == LIMIT
            return status

    one_is_in_time(attempt)


def test_a_client_that_does_not_answer_keeps_only_its_credit() -> None:
    with two() as (holder, other, page):
        Credit(holder).ask()
        started = time.monotonic()
        assert other.result("rgpuMemAlloc", bytes=LIMIT - PAGE).status == OUT_OF_MEMORY
        assert time.monotonic() - started >= 0.25
        assert page.refused(1) == 1
        other.alloc(LIMIT - PAGE - EIGHTH)
        assert page.charged() == LIMIT


def test_an_allocation_of_its_own_asks_for_the_credit_too() -> None:
    """Pools, modules and what else is charged do not come with the credit in hand."""

    def attempt() -> int:
        with credited() as (credit, page):
            client = credit.client
            asked = client.post("rgpuMemAllocPitch", width=MIB, height=60, element_bytes=4)
            fields, _ = client.notice(Notice.MEMORY_CREDIT)
            assert fields["wanted"] == 1
            credit.give_back(credit.granted)
            status = client.wait(asked).status
            if status == 0:
                assert page.charged() == 60 * MIB + PAGE
            return status

    one_is_in_time(attempt)


def test_a_smaller_lease_gets_the_credit_back() -> None:
    with credited() as (credit, page):
        page.set_limit(PAGE)
        fields, _ = credit.client.notice(Notice.MEMORY_CREDIT)
        assert fields["wanted"] == 1
        credit.give_back(credit.granted)
        wait_until(lambda: page.charged() == PAGE)
        assert credit.client.result("rgpuMemAlloc", bytes=PAGE).status == OUT_OF_MEMORY


def test_frees_go_to_the_lease_while_it_is_short() -> None:
    with credited() as (credit, page):
        place = credit.back(0, EIGHTH)
        assert credit.error() == 0
        client = credit.client
        assert client.result("rgpuMemAlloc", bytes=LIMIT).status == OUT_OF_MEMORY
        client.post("rgpuMemFree", dptr=place)
        fields, _ = client.notice(Notice.MEMORY_CREDIT)
        assert fields["granted"] == EIGHTH
        assert page.charged() == PAGE


def test_credit_is_a_quarter_of_what_is_left() -> None:
    with leased() as (client, page):
        client.alloc(LIMIT - MIB)
        credit = Credit(client)
        credit.ask(512 << 10)
        assert credit.granted == (512 << 10) // 4
        assert page.charged() == LIMIT - MIB + (512 << 10) + credit.granted


def test_frees_of_others_are_still_waited_for() -> None:
    with two() as (holder, other, page):
        Credit(other).ask()
        for _ in range(5):
            flag = block_and_free(holder, 50 * MIB)
            asked = other.post("rgpuMemAlloc", bytes=40 * MIB)
            release(holder, flag)
            if other.wait(asked).status == 0:
                return
            wait_until(lambda: page.used() < 50 * MIB)
        raise AssertionError("none waited for what was being freed")


def test_a_hostile_client_never_gets_more_than_its_lease() -> None:
    """Random commands with random numbers: the charge stays within the limit, and all comes back."""
    chance = random.Random(5)
    with credited() as (credit, page):
        client, places = credit.client, [credit.window]
        numbers = (0, 1, PAGE, MIB, EIGHTH, LIMIT, 1 << 40, (1 << 64) - 1)
        for _ in range(1500):
            number = chance.choice((*numbers, chance.randrange(EIGHTH)))
            match chance.randrange(6):
                case 0 | 1:
                    place = credit.window + chance.randrange(-PAGE, 4 * MIB)
                    client.post("rgpuMemBack", dptr=place % (1 << 64), bytes=number)
                    places.append(place)
                case 2:
                    client.post("rgpuMemFree", dptr=chance.choice(places))
                case 3:
                    credit.give_back(number)
                case 4:
                    client.post("rgpuMemBack", dptr=chance.choice(places), bytes=number % MIB)
                case _:
                    client.result(
                        "rgpuMemAllocAhead",
                        bytes=chance.randrange(1, MIB),
                        returned=number,
                        wish=chance.choice(numbers),
                    )
            assert page.charged() <= LIMIT
        for place in places:
            client.post("rgpuMemFree", dptr=place)
        assert client.result("rgpuPing", echo=1).status == 0
