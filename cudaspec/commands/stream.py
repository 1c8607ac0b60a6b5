"""Streams, events, memory operations in streams, launches.  Data only, sorted by opcode.

A stream operand is 1 for the legacy default stream, 2 for the per-thread stream of the header's thread, else the stream's handle.
`notify` asks for a COMPLETED notice when the answer is CUDA_ERROR_NOT_READY.
"""

from cudaspec.model import Command, Meter, Mode, Work, WorkKind

COMMANDS = [
    Command(0x0501, "rgpuStreamCreate", Mode.POSTED, request=("new stream stream", "u32 flags", "i32 priority")),
    Command(0x0502, "rgpuStreamDestroy", Mode.POSTED, request=("stream stream",), destroys=True, reaped=True),
    Command(0x0503, "rgpuStreamSynchronize", Mode.PARKED, request=("stream stream",), reports=True),
    Command(0x0504, "rgpuStreamQuery", Mode.CALL, request=("stream stream", "u64 version", "u8 notify"), reports=True),
    Command(0x0505, "rgpuStreamWaitEvent", Mode.POSTED, request=("stream stream", "event event", "u32 flags"),
            concerns="none"),
    # width: 4 or 8 bytes.
    Command(0x0506, "rgpuStreamWaitValue", Mode.POSTED,
            request=("stream stream", "address address", "u64 value", "u32 flags", "u32 width")),
    Command(0x0507, "rgpuStreamWriteValue", Mode.POSTED,
            request=("stream stream", "address address", "u64 value", "u32 flags", "u32 width")),
    Command(0x0510, "rgpuEventCreate", Mode.POSTED, request=("new event event", "u32 flags"),
            concerns="event"),
    Command(0x0511, "rgpuEventDestroy", Mode.POSTED, request=("event event",), destroys=True, concerns="event"),
    Command(0x0512, "rgpuEventRecord", Mode.POSTED, request=("event event", "stream stream", "u64 version", "u32 flags"),
            concerns="event"),
    Command(0x0513, "rgpuEventQuery", Mode.CALL, request=("event event", "u64 version", "u8 notify"), reports=True,
            passes_gate=True, concerns="event"),
    Command(0x0514, "rgpuEventSynchronize", Mode.PARKED, request=("event event",), reports=True, passes_gate=True,
            concerns="event"),
    Command(0x0515, "rgpuEventElapsedTime", Mode.CALL,
            request=("event start", "event end"), reply=("f32 milliseconds",), concerns="none"),
    # A host function: the worker sends CALLBACK when the stream has come here, and the stream waits
    # for CALLBACK_DONE.
    Command(0x0520, "rgpuHostFunction", Mode.POSTED, request=("stream stream",)),
    # One of function and kernel is 0.
    Command(0x0602, "rgpuLaunch", Mode.POSTED,
            request=("function function", "kernel kernel", "u32 grid_x", "u32 grid_y", "u32 grid_z",
                     "u32 block_x", "u32 block_y", "u32 block_z", "u32 shared_bytes", "stream stream", "u32 flags",
                     "bytes params"),
            charges=(Meter.LAUNCH,), work=Work(WorkKind.LAUNCH), names={"flags": {"kCooperative": 1}}),
]
