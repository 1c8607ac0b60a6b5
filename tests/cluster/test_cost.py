"""The core's integers say what netprobe's formula says in floats."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from netprobe.cost import Workload, cost
from netprobe.estimate import Bandwidth, Confidence, RoundTrips
from netprobe.prober import Measurement
from rgpu_cluster.core.paths import Figures, waiting_ppm
from rgpu_cluster.core.request import Profile
from rgpu_common.units import PPM

rates = st.integers(1_000_000, 100_000_000_000)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        Figures,
        st.integers(1_000, 100_000_000),
        st.integers(0, 10_000_000),
        rates,
        rates,
        st.integers(1_000, 10_000_000),
    ),
    st.builds(
        Profile,
        st.integers(0, 1_000_000),
        st.integers(0, 100_000),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
    ),
)
def test_both_formulas_agree(figures: Figures, profile: Profile) -> None:
    trip = figures.round_trip_ns / 1e9
    path = Measurement(
        "tcp:a:1",
        round_trip=RoundTrips(1, trip, trip, trip, jitter=figures.jitter_ns / 1e9),
        up=bandwidth(figures.up_rate),
        down=bandwidth(figures.down_rate),
        messages_per_second=float(figures.message_rate),
    )
    work = Workload("", profile.calls, profile.syncs, profile.up_bytes, profile.down_bytes)
    expected = cost(path, work).total * PPM
    assert abs(waiting_ppm(figures, profile) - expected) <= 2 + expected / 1000


def bandwidth(rate: int) -> Bandwidth:
    return Bandwidth(float(rate), Confidence.HIGH, shaped=False, trains=1, bytes=1)
