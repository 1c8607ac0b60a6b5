"""What people call runs is chosen by them: no name leads a command to a run that was not meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rgpu_client.background.store import Run
from rgpu_client.cluster.cancel import Target, _exactly, _meant
from rgpu_client.cluster.naming import Named
from rgpu_client.cluster.naming import _meant as leases_meant
from rgpu_client.cluster.servers import Server
from rgpu_common.errors import ServerError, UsageError
from rgpu_common.v1 import lease_pb2

# A run of the victim, and one that somebody else has given names that lead there.
VICTIM = Named(
    Server("a:7700", "gpu1"), lease_pb2.Lease(lease_id="lease-3", key="k1", name="train")
)


def of_foe(key: str, name: str, node: str = "gpu2", lease: str = "lease-30") -> Named:
    return Named(
        Server("b:7700", node), lease_pb2.Lease(lease_id=lease, key=key, name=name, tenant="foe")
    )


@pytest.mark.parametrize("text", ["lease-3", "gpu1/lease-3"])
@pytest.mark.parametrize("name", ["lease-3", "gpu1/lease-3", "gpu1/lease-3x", "lease-3x"])
def test_the_id_of_a_lease_means_that_lease(text: str, name: str) -> None:
    for foe in (of_foe(name, "x"), of_foe("x", name)):
        assert leases_meant([foe, VICTIM], text) == [VICTIM]
        assert leases_meant([foe], text) == [], "the lease has ended"


@pytest.mark.parametrize("text", ["train", "gpu1/train", "k1", "gpu1/k1"])
def test_words_that_two_may_have_mean_both(text: str) -> None:
    assert len(leases_meant([of_foe(text, ""), VICTIM], text)) == 2
    assert len(leases_meant([of_foe("", text), VICTIM], text)) == 2


def target(
    one: str, *names: str, group: tuple[str, str] = ("", ""), given: bool = True, here: bool = False
) -> Target:
    run = Run(one, names[0]) if here else None
    return Target(one, names, group, one, str, given, "" if here else names[0], run)


def meant(targets: Sequence[Target], name: str) -> list[str]:
    here = [one for one in targets if one.run is not None]
    return [one.id for one in _exactly(here, name) or _meant(targets, here, name)]


LEASE = target("gpu1/lease-3", "k1", "train")
REQUEST = target("run-0123456789abcdef", "train", given=False)


@pytest.mark.parametrize("text", ["gpu1/lease-3", "lease-3", "gpu1/claim-7"])
@pytest.mark.parametrize(
    "make",
    [
        lambda word: target("gpu2/lease-9", word, "x"),
        lambda word: target("gpu2/claim-9", "x", word),
        lambda word: target("run-f0", word, given=False),
        lambda word: target("run-f0", "x", group=("foe", word), given=False),
        lambda word: target(word, "x", given=False),
        lambda word: target(f"{word}0", "x", given=False),
        lambda word: target("gpu1/lease-30", f"{word}0"),
    ],
)
def test_what_a_server_called_something_means_that_alone(
    make: Callable[[str], Target], text: str
) -> None:
    claim = target("gpu1/claim-7", "k2", "train")
    foe = make(text)
    assert meant([foe, LEASE, claim], text) == [text if "/" in text else f"gpu1/{text}"]
    with pytest.raises(ServerError, match="nothing that runs"):
        meant([foe], text)


@pytest.mark.parametrize(
    "foe",
    [
        target("run-f0", "x", group=("foe", "train"), given=False),
        target("run-f0", "train", given=False),
        target("train", "x", given=False),
        target("gpu2/lease-9", "train"),
        target("gpu2/claim-9", "train"),
    ],
)
def test_another_tenants_word_is_not_taken_for_ones_own(foe: Target) -> None:
    with pytest.raises(UsageError, match=r"'train' may be .*name one of them"):
        meant([foe, REQUEST], "train")
    assert meant([foe, REQUEST], REQUEST.id) == [REQUEST.id]


def test_a_gang_is_one_of_its_tenant() -> None:
    gang = [target(f"run-{n}", "x", group=("ann", "crew"), given=False) for n in range(2)]
    assert meant(gang, "crew") == ["run-0", "run-1"]
    with pytest.raises(UsageError, match="'crew' may be"):
        meant([*gang, target("run-9", "x", group=("foe", "crew"), given=False)], "crew")


def test_what_only_begins_so_counts_after_all_that_is_called_so() -> None:
    here = target("run-0123456789ab", "training", here=True)
    assert meant([here, LEASE], "train") == ["gpu1/lease-3"]
    own = target("gpu1/lease-4", "run-0123456789ab", "training")
    assert meant([here, own], "run-01") == ["run-0123456789ab"], "its lease ends with it"
    assert meant([own], "run-01") == ["gpu1/lease-4"]
    booked = target("kept-0123456789abcdef", "kept", given=False)
    assert meant([booked], "kept-0") == ["kept-0123456789abcdef"]


@pytest.mark.parametrize("begin", ["trai", "train", "run", "run-", "kep", "kept-"])
def test_a_begin_of_what_people_call_it_ends_nothing(begin: str) -> None:
    others = [
        target("run-0123456789ab", "train-2", here=True),
        target("gpu1/lease-4", "run-ba9876543210", "train-3"),
        target("kept-0123456789abcdef", "kept", given=False),
    ]
    for one in others:
        with pytest.raises(ServerError, match="nothing that runs"):
            meant([one], begin)


def test_of_two_runs_here_with_one_name_none_is_chosen() -> None:
    with pytest.raises(UsageError, match="'train' may be run-1, run-2"):
        meant([target(f"run-{n}", "train", here=True) for n in (1, 2)], "train")
