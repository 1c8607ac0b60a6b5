"""Allocation, pools, copies and sets.  Data only, sorted by opcode.

Copies and sets are two-dimensional: `height` rows of `width` bytes, `pitch` bytes apart on the device side; a linear one has height 1.
Bulk bytes are the rows packed without gaps.  The client splits a copy that does not fit one frame (`MORE` on all its frames but the last).
"""

from cudaspec.model import Command, Meter, Mode, Work, WorkBound, WorkKind

COMMANDS = [
    Command(0x0301, "rgpuMemAlloc", Mode.CALL,
            request=("u64 bytes",), reply=("address dptr",), reports=True, charges=(Meter.VRAM,)),
    Command(0x0302, "rgpuMemAllocPitch", Mode.CALL,
            request=("u64 width", "u64 height", "u32 element_bytes"), reply=("address dptr", "u64 pitch"),
            reports=True, charges=(Meter.VRAM,)),
    Command(0x0303, "rgpuMemFree", Mode.POSTED, request=("address dptr",), destroys=True, reaped=True),
    Command(0x0304, "rgpuMemGetInfo", Mode.CALL, reply=("u64 free", "u64 total"), reports=True, passes_gate=True),
    # max_bytes 0: limited only by the lease.
    Command(0x0305, "rgpuPoolCreate", Mode.CALL,
            request=("new pool pool", "i32 device", "u64 max_bytes"), reports=True, charges=(Meter.POOL,)),
    Command(0x0306, "rgpuPoolDestroy", Mode.POSTED, request=("pool pool",), destroys=True, reaped=True),
    Command(0x0307, "rgpuPoolTrim", Mode.POSTED, request=("pool pool", "u64 keep"), reaped=True),
    Command(0x0308, "rgpuPoolSetAttribute", Mode.POSTED, request=("pool pool", "i32 attribute", "u64 value")),
    Command(0x0309, "rgpuPoolGetAttribute", Mode.CALL, request=("pool pool", "i32 attribute"), reply=("u64 value",)),
    Command(0x030A, "rgpuPoolAlloc", Mode.CALL,
            request=("pool pool", "u64 bytes", "stream stream"), reply=("address dptr",),
            reports=True, charges=(Meter.POOL,)),
    Command(0x030B, "rgpuPoolFree", Mode.POSTED, request=("address dptr", "stream stream"), destroys=True),
    # Virtual memory management. `hint` 0: the worker chooses the addresses.
    Command(0x0310, "rgpuAddressReserve", Mode.CALL,
            request=("u64 bytes", "u64 alignment", "address hint"), reply=("address dptr",)),
    Command(0x0311, "rgpuAddressFree", Mode.POSTED,
            request=("address dptr", "u64 bytes"), destroys=True, reaped=True),
    Command(0x0312, "rgpuMemCreate", Mode.CALL,
            request=("new memory memory", "i32 device", "u64 bytes"), charges=(Meter.VMM,)),
    # The same, for memory that processes of the lease may share. handles: CUmemAllocationHandleType.
    Command(0x0318, "rgpuMemCreateShared", Mode.CALL,
            request=("new memory memory", "i32 device", "u64 bytes", "u32 handles"), charges=(Meter.VMM,)),
    # The handle is gone; mappings keep the memory, and its charge, until they are gone too.
    Command(0x0313, "rgpuMemRelease", Mode.POSTED, request=("memory memory",), destroys=True, reaped=True),
    # Takes no memory of its own: rgpuMemCreate was charged.
    Command(0x0314, "rgpuMemMap", Mode.CALL,
            request=("address dptr", "u64 bytes", "memory memory"), charges=(Meter.VMM,)),
    Command(0x0315, "rgpuMemUnmap", Mode.POSTED,
            request=("address dptr", "u64 bytes"), destroys=True, reaped=True),
    # access: a CUmemAccess_flags.
    Command(0x0316, "rgpuMemSetAccess", Mode.CALL, request=("address dptr", "u64 bytes", "u32 access")),
    # option: a CUmemAllocationGranularity_flags.
    Command(0x0317, "rgpuMemGranularity", Mode.CALL, request=("i32 device", "u32 option"), reply=("u64 bytes",)),
    # Sharing with other processes of the lease. A token names what was exported; the daemon carries
    # the driver's own handle, or a descriptor, from worker to worker.
    Command(0x0340, "rgpuIpcExportMemory", Mode.PARKED, request=("address dptr",), reply=("bytes token",), reports=True),
    # Takes no memory of its own: the exporter is charged until the last process has closed it.
    Command(0x0341, "rgpuIpcOpenMemory", Mode.PARKED, request=("bytes token", "u32 flags"),
            reply=("address dptr", "u64 bytes"), reports=True),
    Command(0x0342, "rgpuIpcCloseMemory", Mode.PARKED, request=("address dptr",)),
    Command(0x0343, "rgpuIpcExportEvent", Mode.CALL, request=("event event",), reply=("bytes token",), concerns="none"),
    Command(0x0344, "rgpuIpcOpenEvent", Mode.PARKED, request=("new event event", "bytes token"), concerns="none"),
    # Answered when all commands before it have reached the driver. A record of an event that other
    # processes see, or a wait for one, has then taken effect.
    Command(0x0345, "rgpuIpcSettle", Mode.CALL, reports=True),
    Command(0x0346, "rgpuIpcExportMappable", Mode.PARKED, request=("memory memory",), reply=("bytes token",), reports=True),
    # Takes no memory of its own, as rgpuIpcOpenMemory.
    Command(0x0347, "rgpuIpcImportMappable", Mode.PARKED, request=("new memory memory", "bytes token"),
            reply=("u64 bytes",), reports=True),
    # Memory credit (docs/adr/0018-memory-credit.md). Allocates, and grants credit: memory that is charged already and that the client
    # may place by itself in the window. returned and granted: bytes in the whole session; wish: as much credit the client wants to have.
    Command(0x0360, "rgpuMemAllocAhead", Mode.CALL, request=("u64 bytes", "u64 returned", "u64 wish"),
            reply=("address dptr", "u64 granted", "address window", "u64 window_bytes", "u64 granule", "u64 gap"),
            reports=True, charges=(Meter.VRAM,), optional=True),
    # Gives memory to addresses of the window. Paid with credit.
    Command(0x0361, "rgpuMemBack", Mode.POSTED, request=("address dptr", "u64 bytes"), charges=(Meter.VRAM,),
            optional=True),
    # synchronous: the copy is complete for every later command on every stream (a fence for
    # non-blocking streams).
    Command(0x0401, "rgpuCopyHtoD", Mode.POSTED,
            request=("address dst", "u64 pitch", "u64 width", "u64 height", "stream stream", "u8 synchronous"),
            bulk="request", charges=(Meter.COPY,), work=Work(WorkKind.COPY_IN, "bulk")),
    # The worker asks for the bytes with PULL when the stream has reached this command.
    Command(0x0402, "rgpuCopyHtoDPull", Mode.POSTED,
            request=("address dst", "u64 pitch", "u64 width", "u64 height", "stream stream"), charges=(Meter.COPY,),
            work=Work(WorkKind.COPY_IN, "width * height")),
    # Answered with packed rows in DATA frames, then the reply.
    Command(0x0403, "rgpuCopyDtoH", Mode.PARKED,
            request=("address src", "u64 pitch", "u64 width", "u64 height", "stream stream"),
            bulk="reply", reports=True, charges=(Meter.COPY,),
            work=Work(WorkKind.COPY_OUT, "width * height", WorkBound.PIECE)),
    # Answered with packed rows in DELIVERY frames.
    Command(0x0404, "rgpuCopyDtoHLater", Mode.DELIVERED,
            request=("address src", "u64 pitch", "u64 width", "u64 height", "stream stream"),
            bulk="reply", charges=(Meter.COPY,), work=Work(WorkKind.COPY_OUT, "width * height")),
    Command(0x0405, "rgpuCopyDtoD", Mode.POSTED,
            request=("address dst", "u64 dst_pitch", "address src", "u64 src_pitch", "u64 width", "u64 height",
                     "stream stream", "u8 synchronous"),
            charges=(Meter.COPY,), work=Work(WorkKind.COPY_WITHIN, "width * height")),
    # width counts elements of element_bytes (1, 2, 4).
    Command(0x0406, "rgpuMemset", Mode.POSTED,
            request=("address dst", "u64 pitch", "u32 element_bytes", "u32 value", "u64 width", "u64 height",
                     "stream stream", "u8 synchronous"),
            charges=(Meter.COPY,), work=Work(WorkKind.SET, "width * height * element_bytes")),
    # The client copies by itself, in device memory that it shares. The reply says that the stream has reached the copy; the stream
    # waits there for COPY_DONE on the control lane.
    Command(0x0407, "rgpuCopyInDirect", Mode.PARKED,
            request=("address dst", "u64 bytes", "stream stream"), reply=("u64 ticket",), charges=(Meter.COPY,),
            work=Work(WorkKind.COPY_IN, "bytes", WorkBound.FIXED), optional=True),
    Command(0x0408, "rgpuCopyOutDirect", Mode.PARKED,
            request=("address src", "u64 bytes", "stream stream"), reply=("u64 ticket",),
            reports=True, charges=(Meter.COPY,), work=Work(WorkKind.COPY_OUT, "bytes", WorkBound.FIXED),
            optional=True),
    # Between two contexts. serial: also behind all work of both contexts and the current one, and before all later work of these.
    Command(0x0410, "rgpuCopyPeer", Mode.POSTED,
            request=("address dst", "context dst_context", "address src", "context src_context", "u64 bytes",
                     "stream stream", "u8 serial"),
            charges=(Meter.COPY,), work=Work(WorkKind.COPY_WITHIN, "bytes")),
    # A non-blocking stream in which the client reads and writes the pages of memory that the program uses on both sides.  It waits for
    # no synchronous copy of other streams, because a host function may use such memory while that copy waits for the function.
    Command(0x0450, "rgpuPageStreamCreate", Mode.POSTED, request=("new stream stream",)),
]
