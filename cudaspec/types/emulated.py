"""What the emulated device implements: every call that the shim implements, and ALSO, without NOT.  Data only."""

# Called by the executor, or by programs in the same process, but not through the shim.
ALSO: list[str] = []

# Calls that only the shim implements, from its own tables.
NOT: list[str] = []

# Pointers that may be null in the device, although the row says that they must not.
NULLABLE = {
    "cuDevicePrimaryCtxGetState": ("flags", "active"),
    "cuLibraryLoadData": ("libraryOptions",),
    "cuLibraryLoadFromFile": ("libraryOptions",),
    "cuStreamGetCtx_v2": ("pGreenCtx",),
}
