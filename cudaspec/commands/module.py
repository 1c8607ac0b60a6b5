"""Images, modules, libraries, functions, the linker, occupancy.  Data only, sorted by opcode.

The client first sends an image in pieces (`rgpuImagePut`) under an id of its own; a load or link then consumes the image.
`params` replies are n x {u32 offset, u32 bytes}; `attributes` are n x i32 indexed by CUfunction_attribute (0..15), then the block that .reqntid demands where it is known.
`options` are n x {i32 CUjit_option, u64 value} without the pointers of log buffers.
"""

from cudaspec.model import Command, Meter, Mode

COMMANDS = [
    Command(0x0201, "rgpuImagePut", Mode.POSTED,
            request=("image image", "u64 offset", "u64 total"), bulk="request"),
    Command(0x0202, "rgpuModuleLoad", Mode.PARKED,
            request=("new module module", "image image", "bytes options", "u32 info_log_bytes", "u32 error_log_bytes"),
            reply=("bytes info_log", "bytes error_log"), reports=True, charges=(Meter.MODULE,)),
    Command(0x0203, "rgpuModuleUnload", Mode.POSTED, request=("module module",), destroys=True, reaped=True),
    Command(0x0204, "rgpuLibraryLoad", Mode.PARKED,
            request=("new library library", "image image", "bytes options",
                     "u32 info_log_bytes", "u32 error_log_bytes"),
            reply=("bytes info_log", "bytes error_log"), reports=True, charges=(Meter.MODULE,)),
    Command(0x0205, "rgpuLibraryUnload", Mode.POSTED, request=("library library",), destroys=True, reaped=True),
    Command(0x0206, "rgpuModuleGetFunction", Mode.CALL,
            request=("module module", "bytes name", "new function function"),
            reply=("bytes params", "bytes attributes")),
    Command(0x0207, "rgpuLibraryGetKernel", Mode.CALL,
            request=("library library", "bytes name", "new kernel kernel"),
            reply=("bytes params", "bytes attributes")),
    Command(0x0208, "rgpuKernelGetFunction", Mode.CALL,
            request=("kernel kernel", "new function function"), reply=("bytes params", "bytes attributes"),
            charges=(Meter.MODULE,)),
    Command(0x0209, "rgpuLibraryGetModule", Mode.CALL,
            request=("library library", "new module module"), charges=(Meter.MODULE,)),
    Command(0x020A, "rgpuModuleGetGlobal", Mode.CALL,
            request=("module module", "bytes name"), reply=("address dptr", "u64 size")),
    Command(0x020B, "rgpuLibraryGetGlobal", Mode.CALL,
            request=("library library", "bytes name"), reply=("address dptr", "u64 size"), charges=(Meter.MODULE,)),
    # Names of all functions of a module, or of all kernels of a library (the other field is 0),
    # each terminated by a zero byte.
    Command(0x020C, "rgpuFunctionNames", Mode.CALL,
            request=("module module", "library library"), reply=("bytes names",)),
    # One of function and kernel is 0.
    Command(0x020D, "rgpuFunctionSetAttribute", Mode.POSTED,
            request=("function function", "kernel kernel", "i32 attribute", "i32 value")),
    Command(0x020E, "rgpuFunctionHint", Mode.POSTED,
            request=("function function", "kernel kernel", "i32 what", "i32 value"),
            names={"what": {"kCacheConfig": 0, "kSharedMemConfig": 1}}),
    # kAsk: cuFuncIsLoaded. kLoad: cuFuncLoad.
    Command(0x020F, "rgpuFunctionLoad", Mode.CALL,
            request=("function function", "i32 load"), reply=("i32 state",), charges=(Meter.MODULE,),
            names={"load": {"kAsk": 0, "kLoad": 1}}),
    Command(0x0210, "rgpuLinkCreate", Mode.CALL,
            request=("new link link", "bytes options", "u32 info_log_bytes", "u32 error_log_bytes")),
    Command(0x0211, "rgpuLinkAddData", Mode.PARKED,
            request=("link link", "i32 type", "image image", "bytes name", "bytes options"),
            reply=("bytes info_log", "bytes error_log")),
    # The linked image is sent in DATA frames before the reply.
    Command(0x0212, "rgpuLinkComplete", Mode.PARKED, request=("link link", "u64 limit"),
            reply=("u64 size", "bytes info_log", "bytes error_log"), bulk="reply"),
    Command(0x0213, "rgpuLinkDestroy", Mode.POSTED, request=("link link",), destroys=True),
    # kBlocksPerProcessor reads block_size, dynamic and flags. kAvailableShared reads blocks and block_size.
    Command(0x0214, "rgpuOccupancy", Mode.CALL,
            request=("function function", "kernel kernel", "i32 what", "i32 block_size", "i32 blocks",
                     "u64 dynamic", "u32 flags"),
            reply=("u64 value",), names={"what": {"kBlocksPerProcessor": 0, "kAvailableShared": 1}}),
    # table: dynamic shared memory for block sizes 1, 32, 64, ... as u64; empty if `dynamic` holds
    # for all block sizes.
    Command(0x0215, "rgpuOccupancyBlockSize", Mode.CALL,
            request=("function function", "kernel kernel", "u64 dynamic", "i32 limit", "u32 flags", "bytes table"),
            reply=("i32 min_grid", "i32 block_size")),
]
