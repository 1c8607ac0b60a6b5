"""Training steps on the node that RGPU_SERVER names, one for each line, which says how many values
the step reads. Prints the seconds of each, and how often it waited for the node.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import rgpu_client.torch
from benchmarks.arrays.models import Training, mlp
from benchmarks.arrays.timing import once
from benchmarks.arrays.wire import counted
from rgpu_client.torch.session import session


def main() -> None:
    training = Training(mlp, 256, str(rgpu_client.torch.device))
    for _ in range(3):
        training.step_reading(4)
    print("ready", flush=True)
    for line in sys.stdin:
        values = int(line)
        with counted(session.current()) as sent:
            seconds = once(lambda values=values: training.step_reading(values))  # type: ignore[misc]
        print(seconds, sent.waits, flush=True)


if __name__ == "__main__":
    main()
