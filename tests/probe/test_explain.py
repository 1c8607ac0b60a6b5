"""Why a path was not chosen although the table of `rgpu probe` speaks for it."""

from __future__ import annotations

from netprobe.choice import choose
from netprobe.cost import BULK_BOUND, CALL_BOUND, MIXED, Workload
from netprobe.explain import contradictions
from netprobe.prober import Measurement
from netprobe.survey import chosen
from probe.paths import broken, path


def explained(paths: list[Measurement], workload: Workload, same_host: bool = False) -> list[str]:
    choice = chosen(paths, same_host, workload) if same_host else choose(paths, workload)
    return contradictions(paths, choice, workload, same_host)


def test_a_choice_that_the_table_does_not_contradict_is_not_explained() -> None:
    best, worse = path("tcp:a:1", trip=0.0001, rate=1e9), path("tcp:b:1", trip=0.001, rate=1e8)
    assert explained([best, worse, broken("tcp:c:1")], MIXED) == []
    assert explained([broken("tcp:c:1")], MIXED) == []


def test_a_lower_round_trip_that_loses_by_its_bandwidth() -> None:
    near, wide = path("tcp:near:1", trip=0.0001, rate=1e7), path("tcp:wide:1", trip=0.002, rate=1e9)
    (sentence,) = explained([near, wide], BULK_BOUND)
    assert sentence.startswith(
        "tcp:near:1 has the lower round trip (100.0 us, over the chosen path 2.0 ms) and is not "
        "chosen: a bulk-bound step takes 13.4 s, over the chosen path "
    )
    assert sentence.endswith(("more to copy to the device", "more to copy to the host"))


def test_a_quicker_step_that_is_too_close_to_decide() -> None:
    paths = [path("grpc:a:1", trip=0.00050), path("tcp:a:1", trip=0.00052)]
    (sentence,) = explained(paths, CALL_BOUND)
    assert sentence.startswith("grpc:a:1 has the quicker call-bound step (")
    assert "within 10% of each other" in sentence
    assert sentence.endswith("and then tcp is preferred to grpc")


def test_what_is_shared_on_one_machine_is_taken_whatever_was_measured() -> None:
    paths = [
        path("shm:/s", trip=0.00002, rate=1e9),
        path("tcp:127.0.0.1:1", trip=0.00001, rate=9e9),
    ]
    (sentence,) = explained(paths, MIXED, same_host=True)
    assert sentence.startswith("tcp:127.0.0.1:1 has the quicker mixed step (")
    assert sentence.endswith("and shm: shares memory with the server")
