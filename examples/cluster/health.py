"""A container's health check: whether its report says that it goes well.

python health.py NAME, with REPORTS the folder that the containers share.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

WELL = ("holding", "ending", "done")


def main() -> int:
    file = Path(os.environ["REPORTS"]) / f"{sys.argv[1]}.json"
    state = json.loads(file.read_text())["state"] if file.exists() else "starting"
    print(state)
    return 0 if state in WELL else 1


if __name__ == "__main__":
    sys.exit(main())
