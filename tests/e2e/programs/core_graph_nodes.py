"""cuda.core: a graph built node by node, with memory of its own, events and a callback."""

import ctypes

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions
from cuda.core.graph import GraphDefinition

SOURCE = r"""
extern "C" __global__ void scale(const int* from, int* to, int by) {
    to[threadIdx.x] = by * from[threadIdx.x];
}
"""
COUNT = 64


def pinned_numbers(count: int):
    buffer = LegacyPinnedMemoryResource().allocate(4 * count)
    view = (ctypes.c_char * (4 * count)).from_address(int(buffer.handle))
    return buffer, np.frombuffer(view, np.int32)


def main() -> None:
    device = Device()
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch="compute_80")
    module = Program(SOURCE, code_type="c++", options=options).compile("ptx")
    scale = module.get_kernel("scale")
    source, given = pinned_numbers(COUNT)
    target, got = pinned_numbers(COUNT)
    event = device.create_event()
    seen = []

    graph = GraphDefinition()
    memory = graph.allocate(4 * COUNT)
    copied = memory.memcpy(memory.dptr, int(source.handle), 4 * COUNT)
    scaled = copied.allocate(4 * COUNT)
    config = LaunchConfig(grid=1, block=COUNT)
    kernel = scaled.launch(config, scale, memory.dptr, scaled.dptr, np.int32(3))
    back = kernel.record(event).memcpy(int(target.handle), scaled.dptr, 4 * COUNT)
    called = back.callback(lambda: seen.append(got.copy()))
    called.deallocate(memory.dptr).deallocate(scaled.dptr)
    assert len(graph.nodes()) == 9
    executable = graph.instantiate()
    for turn in range(1, 5):
        given[:] = np.arange(COUNT) + turn
        executable.launch(stream)
        stream.sync()
        np.testing.assert_array_equal(got, 3 * given)
        np.testing.assert_array_equal(seen[-1], 3 * given)
        assert len(seen) == turn
        assert event.is_done
    executable[kernel].update(
        config=config, kernel=scale, args=(memory.dptr, scaled.dptr, np.int32(5))
    )
    executable.launch(stream)
    stream.sync()
    np.testing.assert_array_equal(got, 5 * given)
    executable[kernel].disable()
    executable.launch(stream)
    stream.sync()
    assert len(seen) == 6
    print("ok")


if __name__ == "__main__":
    main()
