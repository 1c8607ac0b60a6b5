"""Plays the API server from a tape. Whoever asks it something else gets an error, and is noted."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from threading import Condition
from typing import Any

from typing_extensions import Self

from transcripts.stage import SECONDS, Act, Handler, Server, Stage
from transcripts.tape import Entry, Plain


class Replay(Stage):
    """`async with Replay(tape, folder) as stage:`; at its end all of the tape was played.

    A call has to be in the tape, before the next thing that a user does there; among these the order
    is free. An event is told when all before it in the tape has happened.
    """

    def __init__(self, tape: list[Entry], folder: Path) -> None:
        self._tape = tape
        # The entries that a request of our code has found, and those that are over.
        self._taken: set[int] = set()
        self._done = [False] * len(tape)
        self._changed = Condition()
        self._closed = False
        self._server = Server(self._answer)
        self._folder = folder
        self._watches = [n for n, one in enumerate(tape) if "watch" in one]
        # What our code asked that is not in the tape.
        self.wrong: list[str] = []

    async def __aenter__(self) -> Self:
        self._server.__enter__()
        self.client = self._server.client(self._folder)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                # The last answer is noted after our code has it.
                with self._changed:
                    self._changed.wait_for(lambda: self.wrong or not self._left(), SECONDS)
                self.check()
                assert not self._left(), f"our code never asked: {self._left()[0]}"
        finally:
            await self.client.close()
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._server.__exit__()

    async def user(self, what: str, act: Act) -> None:
        number = next(
            (n for n, one in enumerate(self._tape) if not self._done[n] and "user" in one)
        )
        assert self._tape[number]["user"] == what, "the story has changed: `make k8s-record`"
        await self.until(lambda: self._reached(number))
        self._finish(number)

    def meanwhile(self, call: str, act: Act) -> None:
        """It has happened already: the tape has what the server said then."""

    def outdated(self, call: str) -> None:
        """The same."""

    def check(self) -> None:
        assert not self.wrong, self.wrong[0]

    def _reached(self, number: int) -> bool:
        return all(self._done[:number])

    def _finish(self, number: int) -> None:
        with self._changed:
            self._done[number] = True
            self._changed.notify_all()

    def _left(self) -> list[str]:
        """Returns what of the tape our code has not asked."""
        rows = zip(self._tape, self._done, strict=True)
        return [_json(one)[:500] for one, done in rows if not done and "event" not in one]

    # What the server does, in a thread for each connection

    def _answer(self, handler: Handler) -> None:
        number = self._find(handler)
        if isinstance(number, str):
            self.wrong.append(number)
            handler.say(500, {"kind": "Status", "code": 500, "message": number})
            return
        entry = self._tape[number]
        if "watch" not in entry:
            handler.say(entry["code"], entry["content"])
            self._finish(number)
            return
        handler.begin()
        self._finish(number)
        self.watches += 1
        self._tell(handler, self._watches.index(number))

    def _find(self, handler: Handler) -> int | str:
        """Returns the number of the entry that a request is, or what is wrong with it."""
        way = Plain()
        asked = f"{handler.command} {way.path(handler.path)}"
        sent, kind = way.sent(handler.sent), handler.headers["Content-Type"]
        other = ""
        with self._changed:
            for number, entry in enumerate(self._tape):
                if self._done[number] or number in self._taken:
                    continue
                if "user" in entry:
                    other = other or f" before somebody {entry['user']}"
                    break
                if asked not in (entry.get("ask"), entry.get("watch")):
                    continue
                if (sent, kind) == (entry.get("sent"), entry.get("type")):
                    self._taken.add(number)
                    return number
                other = other or f" but {entry.get('type')} {_json(entry.get('sent'))}"
        said = f" with {kind} {_json(sent)}" if sent is not None else ""
        return f"{asked}{said} is not in the tape{other}"

    def _tell(self, handler: Handler, watch: int) -> None:
        """Tells the events of a watch, each when it is time."""
        for number, entry in enumerate(self._tape):
            if entry.get("event") != watch:
                continue
            with self._changed:
                self._changed.wait_for(lambda n=number: self._closed or self._reached(n), SECONDS)
                if self._closed or not self._reached(number):
                    break
            with suppress(OSError):  # a client that is gone needs no news
                handler.tell(entry["content"])
            self._finish(number)
        with self._changed:
            self._changed.wait_for(lambda: self._closed, SECONDS)
        handler.close_connection = True


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True)
