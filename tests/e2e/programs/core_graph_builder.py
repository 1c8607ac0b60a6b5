"""cuda.core: a graph captured with the builder: branches, a callback, an embedded graph, an update."""

import ctypes

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

SOURCE = r"""
extern "C" __global__ void add(int* to, int amount) { atomicAdd(to, amount); }
extern "C" __global__ void sum(const int* a, const int* b, int* to) { *to = *a + *b; }
"""


def main() -> None:
    device = Device()
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch="compute_80")
    module = Program(SOURCE, code_type="c++", options=options).compile("ptx")
    add, total = module.get_kernel("add"), module.get_kernel("sum")
    memory = device.allocate(16, stream=stream)
    pinned = LegacyPinnedMemoryResource().allocate(16)
    numbers = np.frombuffer((ctypes.c_char * 16).from_address(int(pinned.handle)), np.int32)
    numbers[:] = 0
    memory.copy_from(pinned, stream=stream)
    stream.sync()
    one = LaunchConfig(grid=1, block=1)
    at = int(memory.handle)
    seen = []

    def build(amount: int):
        builder = device.create_graph_builder().begin_building()
        launch(builder, one, add, at, np.int32(amount))
        left, right = builder.split(2)
        launch(left, one, add, at + 4, np.int32(10 * amount))
        launch(right, one, add, at + 8, np.int32(100 * amount))
        builder = type(builder).join(left, right)
        launch(builder, one, total, at + 4, at + 8, at + 12)
        return builder

    builder = build(1)
    builder.callback(lambda: seen.append(int(numbers[3])))
    graph = builder.end_building().complete()
    assert not seen
    graph.upload(stream)
    for turn in range(1, 4):
        graph.launch(stream)
        pinned.copy_from(memory, stream=stream)
        stream.sync()
        assert numbers.tolist() == [turn, 10 * turn, 100 * turn, 110 * turn], numbers
        assert len(seen) == turn
    other = build(2)
    other.callback(lambda: seen.append(-1))
    graph.update(other.end_building())
    graph.launch(stream)
    pinned.copy_from(memory, stream=stream)
    stream.sync()
    assert numbers.tolist() == [5, 50, 500, 550], numbers
    assert seen[3:] == [-1]

    inner = build(1).end_building()
    outer = device.create_graph_builder().begin_building()
    outer.embed(inner)
    launch(outer, one, add, at, np.int32(1000))
    outer.end_building().complete().launch(stream)
    pinned.copy_from(memory, stream=stream)
    stream.sync()
    assert numbers.tolist() == [1006, 60, 600, 660], numbers
    print("ok")


if __name__ == "__main__":
    main()
