"""Signals for a program that this process starts."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PRELUDE = """
import os, signal, subprocess, sys
from rgpu_common.passing_on import passing_on

def send(number):
    os.kill(os.getpid(), number)

def program(source):
    return subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE)
"""


def run(source: str) -> tuple[int, str]:
    """Returns how a program ends that passes signals on, and its output."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(source)],
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_a_signal_that_comes_before_the_program_goes_to_it() -> None:
    ended = run("""
        with passing_on([signal.SIGTERM, signal.SIGUSR1]) as pass_to:
            send(signal.SIGUSR1)
            one = program("input()")
            pass_to(one)
            print(signal.Signals(-one.wait()).name)
    """)
    assert ended == (0, "SIGUSR1\n")


def test_a_signal_for_a_program_that_never_starts_ends_this_process() -> None:
    ended = run("""
        with passing_on([signal.SIGTERM]):
            send(signal.SIGTERM)
            print("it goes on", flush=True)
        print("and on", flush=True)
    """)
    assert ended == (-15, "it goes on\n")


def test_what_the_program_gets_by_itself_is_not_sent_again() -> None:
    ended = run("""
        with passing_on([signal.SIGTERM], lambda number: False) as pass_to:
            one = program("input()")
            pass_to(one)
            send(signal.SIGTERM)
            one.communicate(b"bye\\n")
            print(one.returncode)
    """)
    assert ended == (0, "0\n")


def test_an_ignored_signal_is_ignored_by_the_program_and_passed_on() -> None:
    """As for what `nohup` starts."""
    ended = run("""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        source = "import signal; print(signal.getsignal(signal.SIGHUP).name, flush=True)"
        with passing_on([signal.SIGHUP]) as pass_to:
            one = program(source + "; signal.signal(1, signal.SIG_DFL); print('-', flush=True); input()")
            pass_to(one)
            while True:
                send(signal.SIGHUP)
                try:
                    print(-one.wait(0.1))
                    break
                except subprocess.TimeoutExpired:
                    pass
        print(signal.getsignal(signal.SIGHUP).name)
    """)
    assert ended == (0, "SIG_IGN\n-\n1\nSIG_IGN\n")
