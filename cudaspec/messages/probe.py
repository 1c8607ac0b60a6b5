"""PROBE: a measurement of the network, with a codec of its own."""

from cudaspec.message import Message

MESSAGES = [
    Message(
        10,
        "PROBE",
        "both",
        "A measurement, no session ([netprobe.md](../explanation/netprobe.md#the-protocol)).",
        elsewhere=True,
    ),
]
