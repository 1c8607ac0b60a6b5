"""The options of `rgpu run` that say where a card may be, and beside whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.device_names import MAX_DEVICES
from rgpu_common.errors import UsageError
from rgpu_common.mig import check_profile
from rgpu_common.units import format_share, parse_memory_bytes, parse_share

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

MAX_LABEL = 63
MAX_GANG = 1024
REACHES = ("passthrough", "local", "near", "any")
PLACES = ("node", "rack", "zone")
# Fields of `Wanted` whose options have other names.
_OPTIONS = {
    "exclusion": "--exclusive-label",
    "max_slowdown_ppm": "--max-slowdown",
    "gang_size": "--gang",
    "least_ppm": "--min-share",
    "least_bytes": "--min-memory",
    "across": "--across-nodes",
    "max_per": "--max-per-node, --max-per-rack or --max-per-zone",
}


class Wanted(NamedTuple):
    """What the options say.

    reach: a word of REACHES. max_slowdown_ppm: None: any. gang: the runs that start together,
    gang_size in all; "": none. least_ppm, least_bytes: how far its leases may shrink. across: the
    cards may be of several nodes. max_per: the most cards in one node, rack and zone; 0: any
    number. mig: the profile of a MIG slice; "": no slice.
    """

    reach: str = "any"
    max_slowdown_ppm: int | None = None
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    cards: int = 1
    whole: bool = False
    gang: str = ""
    gang_size: int = 1
    model: str = ""
    pool: str = ""
    least_ppm: int | None = None
    least_bytes: int | None = None
    across: bool = False
    max_per: tuple[int, int, int] = (0, 0, 0)
    mig: str = ""

    @property
    def labelled(self) -> bool:
        """True if it says something about the neighbours on a card."""
        return bool(self.affinity or self.anti_affinity or self.exclusion)

    @property
    def named(self) -> list[str]:
        """Returns the options that differ from their defaults."""
        differing = [
            name
            for name, mine, usual in zip(self._fields, self, Wanted(), strict=True)
            if mine != usual
        ]
        words = {"reach": f"--{'whole --local' if self.reach == 'passthrough' else self.reach}"}
        found = [
            words.get(name) or _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
            for name in differing
        ]
        return list(dict.fromkeys(found))

    @property
    def given(self) -> bool:
        """True if an option differs from its default."""
        return self != Wanted()


def add_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the options, and returns their group."""
    group = parser.add_argument_group("options for a cluster (a manager, or several servers)")
    group.add_argument(
        "--manager", metavar="HOST:PORT", help="the manager that chooses (default: RGPU_MANAGER)"
    )
    reach = group.add_mutually_exclusive_group()
    for name, word in (("local", "this machine"), ("near", "this rack"), ("anywhere", "any node")):
        reach.add_argument(
            f"--{name}",
            dest="reach",
            action="store_const",
            const="any" if name == "anywhere" else name,
            help=f"a card of {word}" + (" (default)" if name == "anywhere" else " only"),
        )
    group.add_argument(
        "--max-slowdown",
        metavar="PART",
        help="only cards whose network is predicted to cost at most this: 5%%, 0.05",
    )
    _add_neighbours(group)
    _add_places(group)
    group.add_argument(
        "--gang", metavar="WORD:N", help="start with the other runs of this word, all N or none"
    )
    group.add_argument(
        "--min-share", metavar="PART", help="shrink to this share while others need the rest"
    )
    group.add_argument(
        "--min-memory", metavar="SIZE", help="shrink to this memory while others need the rest"
    )
    _add_kinds(group)
    return group


def _add_neighbours(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--affinity", metavar="WORD", help="on a card with leases of this word, or an idle one"
    )
    group.add_argument(
        "--anti-affinity", metavar="WORD", help="on no card that has a lease with this word"
    )
    group.add_argument(
        "--exclusive-label", metavar="WORD", help="only beside leases with the same word"
    )


def _add_places(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--cards", metavar="N", help="number of cards (default: 1)")
    nodes = group.add_mutually_exclusive_group()
    nodes.add_argument(
        "--one-node", action="store_true", help="all cards are of one server (default)"
    )
    nodes.add_argument(
        "--across-nodes", action="store_true", help="cards of several servers if none has all"
    )
    for place in PLACES:
        group.add_argument(
            f"--max-per-{place}",
            metavar="N",
            help=f"at most so many cards of the run and its gang in one {place}",
        )


def _add_kinds(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--whole", action="store_true", help="the card for this run alone")
    group.add_argument("--model", metavar="NAME", help="only cards of this model")
    group.add_argument("--mig", metavar="PROFILE", help="a MIG slice of this profile: 1g.10gb")
    group.add_argument("--pool", metavar="NAME", help="only cards of this pool")


def wanted(arguments: argparse.Namespace) -> Wanted:
    """Returns what the options say; UsageError names the option that cannot be met."""
    whole = bool(arguments.whole)
    gang, gang_size = _gang(arguments.gang, waits=arguments.wait > 0)
    reach = arguments.reach or "any"
    if whole and arguments.share is not None:
        raise UsageError("--whole is the whole card already: leave out --share")
    found = Wanted(
        reach="passthrough" if whole and reach == "local" else reach,
        max_slowdown_ppm=_slowdown(arguments.max_slowdown),
        affinity=_label("--affinity", arguments.affinity),
        anti_affinity=_label("--anti-affinity", arguments.anti_affinity),
        exclusion=_label("--exclusive-label", arguments.exclusive_label),
        cards=_cards(arguments),
        whole=whole,
        gang=gang,
        gang_size=gang_size,
        model=arguments.model or "",
        pool=arguments.pool or "",
        least_ppm=_least("--min-share", arguments.min_share, parse_share),
        least_bytes=_least("--min-memory", arguments.min_memory, parse_memory_bytes),
        across=_across(arguments),
        max_per=_max_per(arguments),
        mig=_profile(arguments.mig),
    )
    _check_places(found, one_node=arguments.one_node)
    if found.affinity and found.affinity == found.anti_affinity:
        raise UsageError(
            f"--affinity and --anti-affinity both name {found.affinity!r}: leave one of them out"
        )
    if found.affinity and whole:
        raise UsageError("--whole shares its card with nobody: leave out --affinity or --whole")
    return found


def _least(option: str, text: str | None, parse: Callable[[str], int]) -> int | None:
    try:
        return None if text is None else parse(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def _slowdown(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_share(text)
    except UsageError as error:
        raise UsageError(f"--max-slowdown: {error}; write {format_share(50_000)} or 0.05") from None


def _label(option: str, text: str | None) -> str:
    if text is None:
        return ""
    if not 0 < len(text) <= MAX_LABEL or not text.isprintable():
        raise UsageError(f"{option} is a word of 1 to {MAX_LABEL} printable characters: {text!r}")
    return text


def _gang(text: str | None, *, waits: bool) -> tuple[str, int]:
    if text is None:
        return "", 1
    word, _, size = text.rpartition(":")
    if not size.isascii() or not size.isdigit() or not 1 < int(size[:9]) <= MAX_GANG:
        raise UsageError(
            f"--gang is a word and a number from 2 to {MAX_GANG}: train:4, not {text!r}"
        )
    if not waits:
        raise UsageError("--gang waits for the other runs: add --wait")
    return _label("--gang", word), int(size)


def _number(option: str, text: str | None, most: int) -> int:
    """Returns a number of cards; 0: the option is absent."""
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= most:
        raise UsageError(f"{option} is a number from 1 to {most}, not {text!r}")
    return int(text)


def _cards(arguments: argparse.Namespace) -> int:
    return _number("--cards", arguments.cards, MAX_DEVICES) or 1


def _max_per(arguments: argparse.Namespace) -> tuple[int, int, int]:
    found = (getattr(arguments, f"max_per_{place}") for place in PLACES)
    node, rack, zone = (
        _number(f"--max-per-{place}", text, MAX_GANG * MAX_DEVICES)
        for place, text in zip(PLACES, found, strict=True)
    )
    return node, rack, zone


def _across(arguments: argparse.Namespace) -> bool:
    """Bounds that one node cannot keep ask for several."""
    cards = _cards(arguments)
    return arguments.across_nodes or any(0 < most < cards for most in _max_per(arguments))


def _check_places(found: Wanted, *, one_node: bool) -> None:
    if one_node and found.across:
        raise UsageError(
            f"--one-node puts all {found.cards} cards on one node, and --max-per-node, "
            "--max-per-rack or --max-per-zone allows fewer: leave one of them out"
        )
    if found.cards == 1 and not found.gang:
        if any(found.max_per):
            raise UsageError(
                "--max-per-node, --max-per-rack and --max-per-zone are for several cards: add "
                "--cards or --gang"
            )
        if found.across:
            raise UsageError("--across-nodes is for several cards: add --cards")


def _profile(text: str | None) -> str:
    try:
        return "" if text is None else check_profile(text)
    except UsageError as error:
        raise UsageError(f"--mig: {error}") from None
