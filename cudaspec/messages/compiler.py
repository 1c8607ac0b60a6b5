"""What a session, or a program with the emulated device, asks a PTX compiler."""

from cudaspec.message import Channel, Enumeration, Message, Number, Part, Record

CHANNEL = Channel(
    "compiler",
    "the socket between a session and its PTX compiler",
    head=(
        Part("MessageType message", "which message the body is"),
        Part("zero reserved", "0"),
        Part("u64 body_bytes", "length of the body", most="MAX_BODY_BYTES"),
    ),
)
NUMBERS = [
    Number("MAX_BODY_BYTES", 301989888, "the largest image and the rest of its message"),
    Number("MAX_INPUTS", 4096, "inputs of one LOAD or LINK"),
    Number("MAX_ITEMS", 1048576, "entries, globals or functions of a module"),
    Number(
        "MAX_RELOCATIONS",
        12582912,
        "addresses in the initial value of a global; so many fill a message",
    ),
    Number("MAX_PARAM_BYTES", 32764, "parameters of an entry (PTX 8.1; the driver's own limit)"),
    Number("MAX_THREADS", 1024, "threads of a block"),
    Number("MAX_GLOBAL_BYTES", 1099511627776, "a global", "u64"),
    Number("MAX_ALIGN", 65536, "alignment of a global"),
]
ENUMERATIONS = [
    Enumeration("GlobalSpace", "u32", {"GLOBAL": 1, "CONST": 2}, "Where a global lies."),
    Enumeration(
        "GlobalScope",
        "u32",
        {"FUNCTION": 1, "MODULE": 2, "PROGRAM": 3},
        "Who may name a global: the function that declares it, its module, or all linked modules (.visible). cuModuleGetGlobal finds those of modules and programs.",
    ),
    Enumeration(
        "RelocationKind",
        "u32",
        {"GLOBAL_ADDRESS": 1, "FUNCTION_TOKEN": 2},
        "What a relocation writes: the address of a global, or the token of a function.",
    ),
]
RECORDS = [
    Record("ParamInfo", (Part("u32 offset"), Part("u32 size")), "A parameter of an entry."),
    Record(
        "EntryInfo",
        (
            Part("string name", "name of the kernel", most="MAX_BODY_BYTES"),
            Part("ParamInfo[] params", "its parameters", most="MAX_PARAM_BYTES"),
            Part("u32 param_bytes", "their bytes together", most="MAX_PARAM_BYTES"),
            Part("u32 static_shared_bytes", "static shared memory"),
            Part("u32 local_bytes", "local memory of a thread"),
            Part("u32 max_threads", "most threads of a block; 0: 1024", most="MAX_THREADS"),
            Part("u32 required_x", "the only block that it may have (.reqntid); 0: any"),
            Part("u32 required_y"),
            Part("u32 required_z"),
            Part("u32 ptx_version", "80 is 8.0"),
            Part("u32 target", "80 is sm_80"),
            Part("u32 registers", "an estimate"),
            Part("u32 const_bytes", "constant memory of the module"),
            Part("i32 refusal", "the CUresult of the kernel's refusal; 0: it runs"),
            Part("string why", "what the device lacks for it", most="MAX_BODY_BYTES"),
        ),
        "A kernel of a module.",
    ),
    Record(
        "Relocation",
        (Part("u64 offset"), Part("u32 kind"), Part("u32 ordinal"), Part("i64 addend")),
        "At `offset` of a global's initial bytes goes the 8-byte address of the global `ordinal` plus `addend`, or the token of the function `ordinal`; `kind` is a RelocationKind.",
    ),
    Record(
        "GlobalInfo",
        (
            Part("string name", "name of the variable", most="MAX_BODY_BYTES"),
            Part("GlobalSpace space", "1 global, 2 const"),
            Part("u64 size", "its bytes", most="MAX_GLOBAL_BYTES"),
            Part("u32 align", "a power of two", default=1, least=1, most="MAX_ALIGN"),
            Part("GlobalScope scope", "1 function, 2 module, 3 program"),
            Part(
                "bytes initial",
                "the initial value, not longer than the global; the rest is zero",
                most="MAX_BODY_BYTES",
            ),
            Part(
                "Relocation[] relocations",
                "what goes into its initial value: kind 1: the address of the global `ordinal` plus `addend`, 2: the token of the function `ordinal`",
                most="MAX_RELOCATIONS",
            ),
        ),
        "A global of a module. Its ordinal is its place.",
    ),
]
MESSAGES = [
    Message(
        1,
        "LOAD",
        "session",
        "Parse and link these inputs; `.extern` is resolved between them.",
        (Part("bytes# inputs", "PTX texts", most="MAX_INPUTS"),),
    ),
    Message(
        2,
        "LOADED",
        "compiler",
        "The answer to LOAD. With result 0 the log warns of each refused entry; else the lists are empty.",
        (
            Part("i32 result", "a CUresult"),
            Part("string log", "the errors or warnings", most="MAX_BODY_BYTES"),
            Part("digest key", "the key of the module, for LOWER"),
            Part("count entries", most="MAX_ITEMS"),
            Part("count globals", most="MAX_ITEMS"),
            Part("count functions", most="MAX_ITEMS"),
            Part("EntryInfo# entries", "its kernels", counted=True),
            Part("GlobalInfo# globals", "its globals", counted=True),
            Part(
                "string# functions",
                "the symbols of functions whose address is taken, by ordinal",
                counted=True,
            ),
        ),
    ),
    Message(
        3,
        "LOWER",
        "session",
        "Compile one kernel of a loaded module.",
        (
            Part("digest key", "the key of LOADED"),
            Part("string name", "name of the kernel", most="MAX_BODY_BYTES"),
        ),
    ),
    Message(
        4,
        "LOWERED",
        "compiler",
        "The answer to LOWER.",
        (
            Part("i32 result", "a CUresult"),
            Part("string log", "why the kernel is refused", most="MAX_BODY_BYTES"),
            Part("u32 abi", "KERNEL_ABI: the contract between object and runtime"),
            Part("u32 kind", "KernelKind (`kernel_abi.h`)"),
            Part("u32 flags", "KernelFlags (`kernel_abi.h`)"),
            Part("u32 local_bytes", "local memory of a thread"),
            Part("u32 static_shared_bytes", "static shared memory"),
            Part("bytes object", "an ELF relocatable object", most="MAX_BODY_BYTES"),
            Part(
                "u32# function_ordinals",
                "the functions that the object defines, each as `rgpu_fn_ORDINAL`",
                most="MAX_ITEMS",
            ),
        ),
    ),
    Message(
        5,
        "LINK",
        "session",
        "Check that these inputs parse and link.",
        (Part("bytes# inputs", "PTX texts", most="MAX_INPUTS"),),
    ),
    Message(
        6,
        "LINKED",
        "compiler",
        "The answer to LINK.",
        (
            Part("i32 result", "a CUresult"),
            Part("string log", "the errors or warnings", most="MAX_BODY_BYTES"),
            Part(
                "string undefined", "a name that no input defines; or empty", most="MAX_BODY_BYTES"
            ),
            Part("u32 user", "the number of the input that uses it", most="MAX_INPUTS"),
        ),
    ),
]
