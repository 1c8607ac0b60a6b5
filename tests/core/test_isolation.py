"""Which isolation is enough, which measures an operator may do without, and how a refusal is
worded.
"""

from __future__ import annotations

import pytest

from rgpu_server.core.isolation import (
    LANDLOCK,
    NETWORK_NAMESPACE,
    NOT_ROOT,
    OPTIONAL,
    OWN_USER,
    Lack,
    Machine,
    Process,
    Rules,
    Verdict,
    judge,
    read_report,
    refusal,
)

UNSHARE = "network-namespace: EPERM from unshare"
ESSENTIAL = ("no-new-privileges", "capabilities", "not-inspectable", "limits", "system-calls")
# The list of system calls cannot forbid files to NVIDIA's driver, so that it needs its own user.
BESIDE_CUDA = [process for process in Process if process is not Process.CUDA_WORKER]


def lack(entry: str) -> Lack:
    (found,) = read_report(entry)
    return found


def test_a_report_is_a_list_of_measures_and_reasons() -> None:
    assert read_report("") == ()
    assert read_report(f"{UNSHARE}; landlock: ENOSYS from landlock_create_ruleset") == (
        Lack(NETWORK_NAMESPACE, "EPERM from unshare"),
        Lack(LANDLOCK, "ENOSYS from landlock_create_ruleset"),
    )


@pytest.mark.parametrize("process", Process)
def test_whatever_is_missing_is_refused_unless_it_is_allowed_by_name(process: Process) -> None:
    assert judge(process, "", Rules()) == Verdict()
    assert judge(process, UNSHARE, Rules()).refused == (lack(UNSHARE),)
    allowed = Rules(frozenset({NETWORK_NAMESPACE}))
    assert judge(process, UNSHARE, allowed) == Verdict((), (lack(UNSHARE),))
    assert judge(process, UNSHARE, Rules(frozenset({LANDLOCK}))).refused == (lack(UNSHARE),)


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize("report", ["something odd", "telemetry: EPERM from x"])
def test_a_report_that_nobody_understands_is_refused(process: Process, report: str) -> None:
    assert judge(process, report, Rules(frozenset(OPTIONAL))).refused


def test_the_measures_that_nobody_can_do_without_are_not_optional() -> None:
    assert not set(ESSENTIAL) & set(OPTIONAL)
    for measure in ESSENTIAL:
        missing = Lack(measure, "EPERM from prctl")
        sentence = refusal([(Process.WORKER, missing)], Machine())
        assert f"does not run without {measure}" in sentence
        assert "--allow-weak-isolation" not in sentence


@pytest.mark.parametrize("process", BESIDE_CUDA)
def test_a_server_that_is_not_root_shares_its_user_where_nothing_can_be_done_with_it(
    process: Process,
) -> None:
    shared = f"{OWN_USER}: {NOT_ROOT}"
    assert judge(process, shared, Rules(root=False)) == Verdict()
    without_landlock = f"{shared}; landlock: ENOSYS from landlock_create_ruleset"
    allowed = Rules(frozenset({LANDLOCK}), root=False)
    assert [one.measure for one in judge(process, without_landlock, allowed).refused] == [OWN_USER]


def test_a_cuda_worker_needs_a_user_of_its_own() -> None:
    shared = f"{OWN_USER}: {NOT_ROOT}"
    verdict = judge(Process.CUDA_WORKER, shared, Rules(root=False))
    assert verdict.refused == (lack(shared),)
    sentence = refusal([(Process.CUDA_WORKER, lack(shared))], Machine())
    assert "a user of its own" in sentence
    assert "run rgpu serve as root" in sentence
    assert "--allow-weak-isolation=own-user" in sentence
    by_name = Rules(frozenset({OWN_USER}), root=False)
    assert judge(Process.CUDA_WORKER, shared, by_name).weakened == (lack(shared),)


def test_root_that_cannot_change_its_user_is_refused() -> None:
    kept = f"{OWN_USER}: EPERM from setresuid"
    assert judge(Process.GATEWAY, kept, Rules()).refused == (lack(kept),)
    assert "CAP_SETUID" in refusal([(Process.GATEWAY, lack(kept))], Machine())


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(filtered=True), "seccomp profile of a container answers (Docker's default one"),
        (Machine(no_user_namespaces="user.max_user_namespaces = 0"), "max_user_namespaces = 0"),
        (Machine(), "CAP_SYS_ADMIN"),
    ],
)
def test_a_refusal_names_the_measure_the_reason_and_the_remedy(
    machine: Machine, expected: str
) -> None:
    missing = [(process, lack(UNSHARE)) for process in (Process.WORKER, Process.COMPILER)]
    sentence = refusal(missing, machine)
    assert "does not give worker and compiler an empty network of its own" in sentence
    assert "EPERM from unshare" in sentence
    assert expected in sentence
    assert "rgpu serve --allow-weak-isolation=network-namespace" in sentence
    assert "isolation.allow_weak" in sentence


def test_one_flag_names_everything_that_is_missing() -> None:
    missing = [
        (Process.WORKER, lack(UNSHARE)),
        (Process.WORKER, Lack(LANDLOCK, "EOPNOTSUPP from landlock_create_ruleset")),
        (Process.GATEWAY, Lack(OWN_USER, "EPERM from setresuid")),
    ]
    sentence = refusal(missing, Machine())
    assert "--allow-weak-isolation=network-namespace,landlock,own-user" in sentence
