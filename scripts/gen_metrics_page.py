"""Writes docs/reference/metrics.md from the collector of a server.

python scripts/gen_metrics_page.py    # with rgpu installed
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_server.config_reader import load_config
from rgpu_server.daemon import Daemon
from rgpu_server.devices import take_inventory
from rgpu_server.gateway.figures import Figures
from rgpu_server.observe.gateways import gateway_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
_INTRO = """# Metrics

For people who write alerts, dashboards and bills. Every metric that `rgpu serve --metrics` shows is
here, by name. `make gen` writes this page by asking the collector of a server, and a test compares
it with what a running server shows. [Seeing what happens](../how-to/observe.md#prometheus) says how
to scrape them and what they mean together. Those of a manager are on
[its own page](manager.md#metrics).

| name | type | labels | meaning |
| -- | -- | -- | -- |
"""
# prometheus_client's names leave out what the exposition has at their end.
_ENDINGS = {"counter": "_total", "info": "_info"}


def families() -> list[Metric]:
    """Returns the families of a server that has everything which shows metrics."""
    with tempfile.TemporaryDirectory() as folder:
        said = {"devices": ["emulated:1GiB"], "listen": ["127.0.0.1:0"], "server.state": folder}
        config = load_config(None, said)
        observing = replace(config.observing, gpumanager=True)
        daemon = Daemon(replace(config, observing=observing), take_inventory(config))
        handover = daemon.conductor.handover
        assert handover is not None, "the daemon has just made it"
        handover.heard_at = daemon.conductor.clock.now()  # as if its token loop had reported
        found = [*daemon.collector().collect(), *gateway_metrics({"tls": Figures()})]
    return sorted({one.name: one for one in found}.values(), key=lambda family: family.name)


def page() -> str:
    """Returns the page in Markdown. ValueError: a metric says nothing about itself."""
    return _INTRO + "".join(f"{row}\n" for row in rows_of(families()))


def rows_of(found: Iterable[Metric]) -> Iterator[str]:
    """Yields a row of the table for each family."""
    for family in found:
        if not family.documentation.strip():
            raise ValueError(f"the metric {family.name} says nothing about itself")
        name = family.name + _ENDINGS.get(family.type, "")
        labels = ", ".join(f"`{label}`" for label in labels_of(family))
        about = family.documentation.replace("|", "\\|")
        yield f"| `{name}` | {family.type} | {labels} | {about} |"


def labels_of(family: Metric) -> list[str]:
    """Returns the labels of a family, also of one that has no sample now."""
    named: Iterable[str] = getattr(family, "_labelnames", ())
    return list(named)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
