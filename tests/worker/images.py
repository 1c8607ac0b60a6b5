"""PTX that sessions of these tests load and launch."""

from worker.client import LEGACY, Client

LIMIT = 256 << 20


PTX = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .global .align 4 .u32 step = 5;
.visible .entry add(.param .u64 out, .param .u32 start)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out];
    ld.param.u32 %r0, [start];
    mov.u32 %r1, %tid.x;
    ld.global.u32 %r2, [step];
    mad.lo.u32 %r0, %r1, %r2, %r0;
    mul.wide.u32 %d1, %r1, 4;
    add.u64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r0;
    ret;
}
.visible .entry deep(.param .u64 out)
{
    .local .align 16 .b8 stack[16384];
    .reg .b64 %d<4>; .reg .b32 %r<2>;
    ld.param.u64 %d0, [out];
    mov.u64 %d1, stack;
    mov.u32 %r0, 7;
    st.local.u32 [%d1+16000], %r0;
    ld.local.u32 %r1, [%d1+16000];
    st.global.u32 [%d0], %r1;
    ret;
}
"""


def put_image(client: Client, image: int, data: bytes, piece: int = 1 << 20) -> None:
    for at in range(0, len(data), piece):
        client.post(
            "rgpuImagePut", image=image, offset=at, total=len(data), bulk=data[at : at + piece]
        )


def load(client: Client, module: int = 40, data: bytes = PTX) -> None:
    put_image(client, 39, data)
    client.call(
        "rgpuModuleLoad", module=module, image=39, options=b"", info_log_bytes=0, error_log_bytes=0
    )


def launch(
    client: Client,
    params: bytes,
    *,
    function: int = 41,
    kernel: int = 0,
    stream: int = LEGACY,
    threads: int = 32,
) -> None:
    client.post(
        "rgpuLaunch",
        function=function,
        kernel=kernel,
        grid_x=1,
        grid_y=1,
        grid_z=1,
        block_x=threads,
        block_y=1,
        block_z=1,
        shared_bytes=0,
        stream=stream,
        flags=0,
        params=params,
    )
