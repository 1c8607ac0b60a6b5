"""Contexts, threads and the channel itself.  Data only, sorted by opcode."""

from cudaspec.model import Command, Meter, Mode

COMMANDS = [
    Command(0x0101, "rgpuPrimaryRetain", Mode.CALL,
            request=("new context ctx", "i32 device", "u32 flags"), charges=(Meter.CONTEXT,)),
    Command(0x0102, "rgpuContextCreate", Mode.CALL,
            request=("new context ctx", "i32 device", "u32 flags"), charges=(Meter.CONTEXT,)),
    # Also the last release and the reset of a primary context.
    Command(0x0103, "rgpuContextDestroy", Mode.PARKED, request=("context ctx",), destroys=True),
    Command(0x0104, "rgpuContextSynchronize", Mode.PARKED, request=("context ctx",), reports=True, drains=True),
    Command(0x0105, "rgpuContextSetLimit", Mode.PARKED,
            request=("i32 limit", "u64 value"), reports=True, charges=(Meter.LOCAL_MEMORY,)),
    Command(0x0106, "rgpuContextGetLimit", Mode.CALL, request=("i32 limit",), reply=("u64 value",)),
    Command(0x0107, "rgpuContextHint", Mode.POSTED, request=("i32 what", "u32 value"),
            names={"what": {"kCacheConfig": 0, "kSharedMemConfig": 1, "kResetPersistingL2": 2, "kFlags": 3}}),
    Command(0x0108, "rgpuThreadGone", Mode.POSTED, request=("u32 gone",)),
    Command(0x0109, "rgpuPing", Mode.CALL, request=("u64 echo",), reply=("u64 echo",)),
    # The event is recorded behind everything that was issued to the context.
    Command(0x0112, "rgpuContextRecordEvent", Mode.POSTED,
            request=("context ctx", "event event", "u64 version"), concerns="event"),
    # Later work of all streams of the context waits for the event.
    Command(0x0113, "rgpuContextWaitEvent", Mode.POSTED, request=("context ctx", "event event"), concerns="none"),
]
