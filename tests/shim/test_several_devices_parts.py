"""What belongs to one of several devices: graphs, pools, page-locked and managed memory (ADR
0022).
"""

from __future__ import annotations

import pytest
from helpers.two_devices import WAYS, Pair, said


@pytest.fixture(params=WAYS)
def server(pair: Pair, request: pytest.FixtureRequest) -> str:
    return pair.address(request.param)


def test_a_captured_graph_belongs_to_the_device_of_its_stream(server: str) -> None:
    """Kernel, set, copies and memory of the graph, whichever context is current."""
    source = """
    def captured(device):
        current(device)
        function = cuda.function(cuda.load(PTX), "fill")
        stream = made("cuStreamCreate", 1)
        first, host = cuda.alloc(8), made("cuMemHostAlloc", c_size_t(8), 0)
        current(1 - device)
        cuda("cuStreamBeginCapture_v2", stream, 2)
        second = made("cuMemAllocAsync", c_size_t(8), stream)
        cuda("cuMemsetD32Async", c_uint64(first), 5, c_size_t(2), stream)
        assert launch(function, first, 70 + device, stream) == 0
        cuda("cuMemcpyDtoDAsync_v2", second, c_uint64(first), c_size_t(8), stream)
        cuda("cuMemcpyDtoHAsync_v2", host, second, c_size_t(8), stream)
        cuda("cuMemFreeAsync", second, stream)
        graph = c_uint64()
        cuda("cuStreamEndCapture", stream, byref(graph))
        return stream, made("cuGraphInstantiateWithFlags", graph, c_uint64(0)), host

    graphs = [captured(device) for device in (0, 1)]
    for turn in range(3):
        for stream, graph, host in graphs:
            ctypes.memset(host.value, 0, 8)
            cuda("cuGraphLaunch", graph, stream)
        for device, (stream, graph, host) in enumerate(graphs):
            cuda("cuStreamSynchronize", stream)
            print((c_int * 2).from_address(host.value)[:])
    print(cuda.result("cuGraphLaunch", graphs[0][1], graphs[1][0]))
    """
    assert said(server, source) == ["[70, 5]", "[71, 5]"] * 3 + ["400"]


def test_a_graph_of_two_devices_is_refused(server: str) -> None:
    source = """
    class Set(ctypes.Structure):
        _fields_ = [("to", c_uint64), ("pitch", c_size_t), ("value", c_uint), ("size", c_uint),
                    ("width", c_size_t), ("height", c_size_t)]
    graph, memory = made("cuGraphCreate", 0), []
    def add(device):
        current(device)
        memory.append(cuda.alloc(4))
        params = Set(memory[-1], 4, 9 + device, 4, 1, 1)
        made("cuGraphAddMemsetNode", graph, None, c_size_t(0), byref(params), contexts[device])
    add(1)
    current(0)
    alone = made("cuGraphInstantiateWithFlags", graph, c_uint64(0))
    add(0)
    both = c_uint64()
    print(cuda.result("cuGraphInstantiateWithFlags", byref(both), graph, c_uint64(0)))
    current(1)
    cuda("cuGraphLaunch", alone, None)
    print(word(memory[0]))
    """
    assert said(server, source) == ["801", "10"]


def test_memory_of_graphs_counts_for_its_device(server: str) -> None:
    source = """
    def attributes(device):
        values = []
        for which in range(4):
            value = c_uint64()
            cuda("cuDeviceGetGraphMemAttribute", device, which, byref(value))
            values.append(value.value >> 20)
        return values
    current(0)
    kept = []
    for device, mib in ((0, 1), (1, 3)):
        current(device)
        stream = made("cuStreamCreate", 1)
        current(0)
        cuda("cuStreamBeginCapture_v2", stream, 2)
        made("cuMemAllocAsync", c_size_t(mib << 20), stream)
        graph = c_uint64()
        cuda("cuStreamEndCapture", stream, byref(graph))
        kept.append((stream, graph, made("cuGraphInstantiateWithFlags", graph, c_uint64(0))))
        cuda("cuGraphLaunch", kept[-1][2], stream)
    print(attributes(0), attributes(1))
    """
    assert said(server, source) == ["[1, 1, 1, 1] [3, 3, 3, 3]"]


def test_page_locked_memory_is_for_all_devices(server: str) -> None:
    """Copies of either device use it, and so do kernels, each device by an image of its own."""
    source = """
    current(0)
    host = made("cuMemHostAlloc", c_size_t(64), 0)
    words = (c_int * 16).from_address(host.value)
    free = []
    for device in (1, 0):
        current(device)
        function, stream = cuda.function(cuda.load(PTX), "fill"), made("cuStreamCreate", 0)
        address = cuda.alloc(64)
        words[:] = range(16)
        cuda("cuMemcpyHtoDAsync_v2", c_uint64(address), host, c_size_t(64), stream)
        cuda("cuStreamSynchronize", stream)
        assert launch(function, address + 12, 33, stream) == 0
        cuda("cuMemcpyDtoHAsync_v2", host, c_uint64(address), c_size_t(64), stream)
        cuda("cuStreamSynchronize", stream)
        assert words[:5] == [0, 1, 2, 33, 4], words[:5]
        cuda.free(address)
        free.append(cuda.memory()[0])
        assert launch(function, host.value + 16, 100 + device, stream) == 0
        cuda("cuStreamSynchronize", stream)
        print(words[3], words[4])
    cuda("cuMemFreeHost", host)
    for device, before in zip((1, 0), free):
        current(device)
        print(before == cuda.memory()[0])
    """
    assert said(server, source, RGPU_MEMORY_CREDIT="0") == ["33 101", "33 100", "True", "True"]


def test_registered_memory_has_an_image_on_each_device(server: str) -> None:
    source = """
    import mmap
    pages = mmap.mmap(-1, 4096)
    host = ctypes.addressof(c_int.from_buffer(pages))
    words = (c_int * 16).from_address(host)
    current(1)
    cuda("cuMemHostRegister_v2", c_void_p(host), c_size_t(4096), 2)
    current(0)
    print(cuda.result("cuMemHostRegister_v2", c_void_p(host), c_size_t(4096), 2))
    images = []
    for device in (0, 1):
        current(device)
        images.append(made("cuMemHostGetDevicePointer_v2", c_void_p(host), 0))
        words[device] = 0
        function = cuda.function(cuda.load(PTX), "fill")
        assert launch(function, images[-1].value + 4 * device, 8 + device) == 0
        cuda("cuCtxSynchronize")
        print(words[device])
    print(images[0].value != images[1].value)
    cuda("cuMemHostUnregister", c_void_p(host))
    current(0)
    print(cuda.result("cuMemHostGetDevicePointer_v2", byref(c_uint64()), c_void_p(host), 0))
    """
    assert said(server, source) == ["712", "8", "9", "True", "1"]


def test_managed_memory_of_one_device_outlives_that_of_another(server: str) -> None:
    """The pages of each are kept equal on both sides, also when the other device has none left."""
    source = """
    memory, functions, words = [], [], []
    for device in (0, 1):
        current(device)
        memory.append(made("cuMemAllocManaged", c_size_t(4096), 1))
        functions.append(cuda.function(cuda.load(PTX), "fill"))
        words.append((c_int * 4).from_address(memory[-1].value))
    def turn(device, value):
        current(device)
        words[device][1] = value
        assert launch(functions[device], memory[device], value) == 0
        cuda("cuCtxSynchronize")
        assert words[device][:2] == [value, value], words[device][:2]
    for value in (1, 2):
        turn(0, value), turn(1, value)
    cuda.free(memory[0].value)
    turn(1, 3), turn(1, 4)
    current(0)
    host = made("cuMemHostAlloc", c_size_t(64), 0)
    assert launch(functions[0], host, 5) == 0
    cuda("cuCtxSynchronize")
    cuda("cuMemFreeHost", host)
    turn(1, 5)
    print("ok")
    """
    assert said(server, source) == ["ok"]


def test_pools_belong_to_their_device(server: str) -> None:
    source = """
    class Props(ctypes.Structure):
        _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int),
                    ("security", c_void_p), ("size", c_size_t), ("rest", ctypes.c_ubyte * 56)]
    current(0)
    pool = made("cuMemPoolCreate", byref(Props(type=1, location=1, device=1)))
    near = made("cuStreamCreate", 0)
    current(1)
    far = made("cuStreamCreate", 0)
    current(0)
    address = made("cuMemAllocFromPoolAsync", c_size_t(1 << 20), pool, far)
    print(cuda.result("cuMemAllocFromPoolAsync", byref(c_uint64()), c_size_t(4), pool, near))
    print(number("cuPointerGetAttribute", 9, address))
    used = c_uint64()
    cuda("cuMemPoolGetAttribute", pool, 7, byref(used))
    cuda("cuMemsetD32Async", address, 3, c_size_t(1), far)
    cuda("cuStreamSynchronize", far)
    current(1)
    print(used.value >> 20, word(address))
    current(0)
    defaults = [made("cuDeviceGetDefaultMemPool", device) for device in (0, 1)]
    ours = made("cuMemAllocAsync", c_size_t(4), near)
    owner = c_uint64()
    cuda("cuPointerGetAttribute", byref(owner), 17, ours)
    print(owner.value == defaults[0].value, defaults[0].value != defaults[1].value)
    cuda("cuMemFreeAsync", address, far)
    cuda("cuMemPoolDestroy", pool)
    """
    assert said(server, source) == ["1", "1", "1 3", "True True"]


def test_attributes_of_a_kernel_are_those_of_the_device_it_names(server: str) -> None:
    source = """
    current(0)
    library = made("cuLibraryLoadData", create_string_buffer(PTX), None, None, 0, None, None, 0)
    kernel = made("cuLibraryGetKernel", library, b"fill")
    cuda("cuKernelSetAttribute", 8, 2048, kernel, 1)
    print([number("cuKernelGetAttribute", 8, kernel, device) for device in (0, 1)])
    """
    zero, one = said(server, source)[0].strip("[]").split(", ")
    assert (zero != "2048", one) == (True, "2048")


def test_virtual_memory_is_of_the_device_that_it_names(server: str) -> None:
    """Memory of the device that is not current is made, exported to no one, and released; that of
    the current one is mapped.
    """
    source = """
    class Props(ctypes.Structure):
        _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int),
                    ("win32", c_void_p), ("flags", ctypes.c_ubyte * 8)]
    class Access(ctypes.Structure):
        _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]
    size = c_size_t(2 << 20)
    current(0)
    far = made("cuMemCreate", size, byref(Props(type=1, location=1, device=1)), c_uint64(0))
    base = made("cuMemAddressReserve", size, c_size_t(0), c_uint64(0), c_uint64(0))
    print(cuda.result("cuMemMap", base, size, c_size_t(0), far, c_uint64(0)))
    near = made("cuMemCreate", size, byref(Props(type=1, location=1, device=0)), c_uint64(0))
    cuda("cuMemMap", base, size, c_size_t(0), near, c_uint64(0))
    cuda("cuMemSetAccess", base, size, byref(Access(1, 0, 3)), c_size_t(1))
    print(cuda.result("cuMemSetAccess", base, size, byref(Access(1, 1, 3)), c_size_t(1)) != 0)
    cuda.upload(base.value, b"here")
    print(cuda.download(base.value, 4))
    cuda("cuMemUnmap", base, size)
    cuda("cuMemRelease", near)
    cuda("cuMemRelease", far)
    cuda("cuMemAddressFree", base, size)
    """
    assert said(server, source) == ["1", "True", "b'here'"]
