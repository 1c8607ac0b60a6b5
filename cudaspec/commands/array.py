"""Arrays, texture and surface objects, tensor maps, and copies of boxes.  Data only, sorted by opcode.

A box is `depth` slices of `height` rows of `width` bytes, in an array or in linear memory.  In linear memory the rows begin `pitch` bytes
apart and the slices `rows` rows apart, and x, y and z are 0.  In an array (not 0) the box begins at x (bytes), y and z, and the address,
the pitch and the rows are 0.  Bulk bytes are the rows of all slices, packed without gaps.  The client splits a box that does not fit one
frame (`MORE` on all its frames but the last).
"""

from cudaspec.model import Command, Meter, Mode, Work, WorkBound, WorkKind

COMMANDS = [
    # The fields of CUDA_ARRAY3D_DESCRIPTOR.
    Command(0x0420, "rgpuArrayCreate", Mode.CALL,
            request=("new array array", "u64 width", "u64 height", "u64 depth", "u32 format", "u32 channels", "u32 flags"),
            reports=True, charges=(Meter.ARRAY,)),
    # With its planes.
    Command(0x0421, "rgpuArrayDestroy", Mode.POSTED, request=("array array",), destroys=True, reaped=True),
    Command(0x0422, "rgpuMipmappedArrayCreate", Mode.CALL,
            request=("new mipmap mipmap", "u64 width", "u64 height", "u64 depth", "u32 format", "u32 channels",
                     "u32 flags", "u32 levels"),
            reports=True, charges=(Meter.ARRAY,)),
    # With its levels.
    Command(0x0423, "rgpuMipmappedArrayDestroy", Mode.POSTED, request=("mipmap mipmap",), destroys=True, reaped=True),
    # The new array is part of the other object, which keeps its memory. The reply describes it.
    Command(0x0424, "rgpuMipmapLevel", Mode.CALL, request=("new array array", "mipmap mipmap", "u32 level"),
            reply=("u64 width", "u64 height", "u64 depth", "u32 format", "u32 channels", "u32 flags")),
    Command(0x0425, "rgpuArrayPlane", Mode.CALL, request=("new array array", "array whole", "u32 plane"),
            reply=("u64 width", "u64 height", "u64 depth", "u32 format", "u32 channels", "u32 flags")),
    # kind: a CUresourcetype; array, mipmap, or linear memory with its format. The fields of CUDA_TEXTURE_DESC follow, and, if `views` is
    # 1, those of CUDA_RESOURCE_VIEW_DESC. Kernels read the value of the object, so the device chooses it.
    Command(0x0428, "rgpuTextureCreate", Mode.CALL,
            request=("u32 kind", "array array", "mipmap mipmap", "address dptr", "u32 format", "u32 channels",
                     "u64 bytes", "u64 width", "u64 height", "u64 pitch",
                     "u32 address0", "u32 address1", "u32 address2", "u32 filter", "u32 flags", "u32 anisotropy",
                     "u32 mip_filter", "f32 bias", "f32 min_level", "f32 max_level",
                     "f32 border0", "f32 border1", "f32 border2", "f32 border3",
                     "u32 views", "u32 view_format", "u64 view_width", "u64 view_height", "u64 view_depth",
                     "u32 first_level", "u32 last_level", "u32 first_layer", "u32 last_layer"),
            reply=("u64 texture",)),
    Command(0x0429, "rgpuTextureDestroy", Mode.POSTED, request=("u64 texture",), destroys=True, reaped=True),
    Command(0x042A, "rgpuSurfaceCreate", Mode.CALL, request=("array array",), reply=("u64 surface",)),
    Command(0x042B, "rgpuSurfaceDestroy", Mode.POSTED, request=("u64 surface",), destroys=True, reaped=True),
    # The driver computes the 128 bytes of a tensor map. Lists have one element for each dimension: sizes u64, strides u64 (one fewer),
    # box and element strides u32, corners i32 (two fewer).
    Command(0x042C, "rgpuTensorMapTiled", Mode.CALL,
            request=("u32 data_type", "u32 rank", "address dptr", "u32 interleave", "u32 swizzle", "u32 promotion",
                     "u32 fill", "bytes sizes", "bytes strides", "bytes box", "bytes element_strides"),
            reply=("bytes map",)),
    Command(0x042D, "rgpuTensorMapIm2col", Mode.CALL,
            request=("u32 data_type", "u32 rank", "address dptr", "u32 interleave", "u32 swizzle", "u32 promotion",
                     "u32 fill", "u32 channels", "u32 pixels", "bytes sizes", "bytes strides", "bytes lower",
                     "bytes upper", "bytes element_strides"),
            reply=("bytes map",)),
    Command(0x042E, "rgpuTensorMapIm2colWide", Mode.CALL,
            request=("u32 data_type", "u32 rank", "address dptr", "u32 interleave", "u32 swizzle", "u32 promotion",
                     "u32 fill", "u32 channels", "u32 pixels", "i32 lower", "i32 upper", "u32 mode", "bytes sizes",
                     "bytes strides", "bytes element_strides"),
            reply=("bytes map",)),
    Command(0x042F, "rgpuTensorMapReplaceAddress", Mode.CALL, request=("address dptr", "bytes map"),
            reply=("bytes replaced",)),
    Command(0x0430, "rgpuCopyBoxIn", Mode.POSTED,
            request=("array array", "address at", "u64 pitch", "u64 rows", "u64 x", "u64 y", "u64 z",
                     "u64 width", "u64 height", "u64 depth", "stream stream", "u8 synchronous"),
            bulk="request", charges=(Meter.COPY,), work=Work(WorkKind.COPY_IN, "bulk")),
    # The worker asks for the bytes with PULL when the stream has reached this command.
    Command(0x0431, "rgpuCopyBoxInPull", Mode.POSTED,
            request=("array array", "address at", "u64 pitch", "u64 rows", "u64 x", "u64 y", "u64 z",
                     "u64 width", "u64 height", "u64 depth", "stream stream"),
            charges=(Meter.COPY,), work=Work(WorkKind.COPY_IN, "width * height * depth")),
    # Answered with packed rows in DATA frames, then the reply.
    Command(0x0432, "rgpuCopyBoxOut", Mode.PARKED,
            request=("array array", "address at", "u64 pitch", "u64 rows", "u64 x", "u64 y", "u64 z",
                     "u64 width", "u64 height", "u64 depth", "stream stream"),
            bulk="reply", reports=True, charges=(Meter.COPY,),
            work=Work(WorkKind.COPY_OUT, "width * height * depth", WorkBound.PIECE)),
    # Answered with packed rows in DELIVERY frames.
    Command(0x0433, "rgpuCopyBoxOutLater", Mode.DELIVERED,
            request=("array array", "address at", "u64 pitch", "u64 rows", "u64 x", "u64 y", "u64 z",
                     "u64 width", "u64 height", "u64 depth", "stream stream"),
            bulk="reply", charges=(Meter.COPY,), work=Work(WorkKind.COPY_OUT, "width * height * depth")),
    Command(0x0434, "rgpuCopyBoxWithin", Mode.POSTED,
            request=("array dst_array", "address dst", "u64 dst_pitch", "u64 dst_rows", "u64 dst_x", "u64 dst_y",
                     "u64 dst_z", "array src_array", "address src", "u64 src_pitch", "u64 src_rows", "u64 src_x",
                     "u64 src_y", "u64 src_z", "u64 width", "u64 height", "u64 depth", "stream stream",
                     "u8 synchronous"),
            charges=(Meter.COPY,), work=Work(WorkKind.COPY_WITHIN, "width * height * depth")),
    # Between two contexts. serial: as for rgpuCopyPeer.
    Command(0x0435, "rgpuCopyBoxPeer", Mode.POSTED,
            request=("array dst_array", "address dst", "u64 dst_pitch", "u64 dst_rows", "u64 dst_x", "u64 dst_y",
                     "u64 dst_z", "context dst_context", "array src_array", "address src", "u64 src_pitch",
                     "u64 src_rows", "u64 src_x", "u64 src_y", "u64 src_z", "context src_context", "u64 width",
                     "u64 height", "u64 depth", "stream stream", "u8 serial"),
            charges=(Meter.COPY,), work=Work(WorkKind.COPY_WITHIN, "width * height * depth")),
]
