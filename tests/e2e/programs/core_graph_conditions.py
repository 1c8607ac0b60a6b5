"""cuda.core: conditional nodes, whose kernels set the condition on the device."""

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
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
extern "C" __global__ void decide(unsigned long long handle, const int* of) {
    cudaGraphSetConditional(handle, *of);
}
extern "C" __global__ void add(int* to, int amount) { *to += amount; }
extern "C" __global__ void step(unsigned long long handle, int* left, int* done) {
    *done += 1;
    *left -= 1;
    cudaGraphSetConditional(handle, *left > 0);
}
"""


class Program4:
    """Four numbers in device memory, and three kernels."""

    def __init__(self) -> None:
        self.device = Device()
        self.device.set_current()
        self.stream = self.device.create_stream()
        options = ProgramOptions(std="c++17", arch="compute_80", relocatable_device_code=True)
        module = Program(SOURCE, code_type="c++", options=options).compile("ptx")
        self.kernels = {name: module.get_kernel(name) for name in ("decide", "add", "step")}
        self.memory = self.device.allocate(16, stream=self.stream)
        self.pinned = LegacyPinnedMemoryResource().allocate(16)
        view = (ctypes.c_char * 16).from_address(int(self.pinned.handle))
        self.numbers = np.frombuffer(view, np.int32)

    def at(self, index: int) -> int:
        return int(self.memory.handle) + 4 * index

    def launch(self, builder, kernel: str, *arguments) -> None:
        launch(builder, LaunchConfig(grid=1, block=1), self.kernels[kernel], *arguments)

    def run(self, graph, *numbers: int) -> list[int]:
        self.numbers[:] = numbers
        self.memory.copy_from(self.pinned, stream=self.stream)
        graph.launch(self.stream)
        self.pinned.copy_from(self.memory, stream=self.stream)
        self.stream.sync()
        return [int(n) for n in self.numbers]


def pick(program: Program4, chosen: int) -> object:
    """A graph whose condition has a default value, and no kernel that sets it."""
    builder = program.device.create_graph_builder().begin_building()
    condition = builder.create_condition(default_value=chosen)
    for i, case in enumerate(builder.switch(condition, 3)):
        program.launch(case.begin_building(), "add", program.at(i), np.int32(9))
        case.end_building()
    return builder.end_building()


def main() -> None:
    program = Program4()
    builder = program.device.create_graph_builder().begin_building()
    condition = builder.create_condition(default_value=0)
    program.launch(builder, "decide", condition, program.at(0))
    then, otherwise = builder.if_else(condition)
    program.launch(then.begin_building(), "add", program.at(1), np.int32(1))
    then.end_building()
    program.launch(otherwise.begin_building(), "add", program.at(2), np.int32(1))
    otherwise.end_building()
    program.launch(builder, "add", program.at(3), np.int32(1))
    graph = builder.end_building().complete()
    assert program.run(graph, 1, 0, 0, 0) == [1, 1, 0, 1]
    assert program.run(graph, 0, 0, 0, 0) == [0, 0, 1, 1]
    assert program.run(graph, 7, 0, 0, 0) == [7, 1, 0, 1]

    builder = program.device.create_graph_builder().begin_building()
    condition = builder.create_condition(default_value=1)
    body = builder.while_loop(condition).begin_building()
    program.launch(body, "step", condition, program.at(0), program.at(1))
    body.end_building()
    graph = builder.end_building().complete()
    for rounds in (1, 5, 100):
        assert program.run(graph, rounds, 0, 0, 0) == [0, rounds, 0, 0]

    builder = program.device.create_graph_builder().begin_building()
    condition = builder.create_condition()
    program.launch(builder, "decide", condition, program.at(0))
    for i, case in enumerate(builder.switch(condition, 3)):
        program.launch(case.begin_building(), "add", program.at(1 + i), np.int32(9))
        case.end_building()
    graph = builder.end_building().complete()
    assert program.run(graph, 0, 0, 0, 0) == [0, 9, 0, 0]
    assert program.run(graph, 2, 0, 0, 0) == [2, 0, 0, 9]
    assert program.run(graph, 3, 0, 0, 0) == [3, 0, 0, 0]

    graphs = [pick(program, chosen) for chosen in range(3)]
    graph = graphs[0].complete()
    assert program.run(graph, 0, 0, 0, 0) == [9, 0, 0, 0]
    for chosen in (1, 2):
        graph.update(graphs[chosen])
        assert program.run(graph, 0, 0, 0, 0) == [9 * (chosen == n) for n in range(3)] + [0]
    print("ok")


if __name__ == "__main__":
    main()
