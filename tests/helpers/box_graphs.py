"""Copies of rows and slices as nodes of graphs, against the models of `box_models`."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from helpers.box_models import QUEUED, Drawn, Places, assorted
from helpers.boxes import F32, U16, Box, shape
from helpers.maps import Driver

RELAXED = c_int(2)


class _Result(ctypes.Structure):
    """CUgraphExecUpdateResultInfo."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("source", c_void_p))


class _Copies:
    """A graph whose nodes are copies, one after the other."""

    def __init__(self, places: Places, copies: list[Drawn], captured: bool) -> None:
        self.places, self.driver, self.copies = places, places.driver, copies
        self.graph, self.exec, self.nodes = c_void_p(), c_void_p(), [c_void_p()] * len(copies)
        if captured:
            self._capture()
        else:
            self._build()
        self.driver("cuGraphInstantiateWithFlags", byref(self.exec), self.graph, c_uint64(0))

    def _build(self) -> None:
        self.driver("cuGraphCreate", byref(self.graph), 0)
        for number, copy in enumerate(self.copies):
            given, node, context = copy.box(), c_void_p(), c_void_p(self.places.context)
            before = self.nodes[number - 1 : number] if number else []
            after = (c_void_p * max(1, len(before)))(*before)
            count = c_size_t(len(before))
            call = "cuGraphAddMemcpyNode"
            self.driver(call, byref(node), self.graph, after, count, byref(given), context)
            self.nodes[number] = node
            assert bytes(self.params(number)) == bytes(given)

    def _capture(self) -> None:
        self.driver("cuStreamBeginCapture_v2", self.places.stream, RELAXED)
        for copy in self.copies:
            self.places.issue(copy, QUEUED)
        self.driver("cuStreamEndCapture", self.places.stream, byref(self.graph))
        count, found = c_size_t(len(self.copies) + 1), (c_void_p * (len(self.copies) + 1))()
        self.driver("cuGraphGetNodes", self.graph, found, byref(count))
        assert count.value == len(self.copies)
        self.nodes = [c_void_p(node) for node in list(found)[: count.value]]

    def params(self, number: int) -> Box:
        found = Box()
        self.driver("cuGraphMemcpyNodeGetParams", self.nodes[number], byref(found))
        return found

    def launch(self) -> None:
        self.driver("cuGraphLaunch", self.exec, self.places.stream)
        self.driver("cuStreamSynchronize", self.places.stream)
        for copy in self.copies:
            copy.apply()

    def change(self, number: int, whole: bool) -> None:
        """Another copy between the same places, for one node or in an update of the whole."""
        old = self.copies[number]
        self.copies[number] = self.places.draw(old.source, old.target)
        context = c_void_p(self.places.context)
        if not whole:
            call, given = "cuGraphExecMemcpyNodeSetParams", self._given(number)
            self.driver(call, self.exec, self.nodes[number], byref(given), context)
            return
        for each, node in enumerate(self.nodes):  # the graph has not seen changes of one node
            given = self._given(each)
            self.driver("cuGraphMemcpyNodeSetParams", node, byref(given))
            assert bytes(self.params(each)) == bytes(given)
        result = _Result()
        self.driver("cuGraphExecUpdate_v2", self.exec, self.graph, byref(result))
        assert result.result == 0

    def _given(self, number: int) -> Box:
        given, before = self.copies[number].box(), self.params(number)
        # A capture may name a unified address as what it is; the kind of a side cannot change.
        given.srctype, given.dsttype = before.srctype, before.dsttype
        return given

    def destroy(self) -> None:
        self.driver("cuGraphExecDestroy", self.exec)
        self.driver("cuGraphDestroy", self.graph)


def random_nodes(driver: Driver, context: int, seed: int, rounds: int) -> None:
    """Random copies between memory of all kinds: added one by one or captured, launched, changed
    and launched again.
    """
    places = assorted(driver, context, seed)
    for turn in range(rounds):
        copies = [places.draw() for _ in range(places.random.randint(1, 4))]
        graph = _Copies(places, copies, captured=turn % 2 == 0)
        graph.launch()
        for whole in (False, True):
            graph.change(places.random.randrange(len(copies)), whole)
            graph.launch()
        graph.destroy()
    places.check()


def big_nodes(driver: Driver, context: int, seed: int) -> None:
    """Host sides of more bytes than all staging memory of a graph: many slices, and rows that are
    longer than a piece of it.
    """
    places = Places(driver, context, seed)
    for wanted in (
        shape(300, 200, 20, format=F32),
        shape(16, 8, 9000, format=F32),
        shape(100_000, 12, format=U16, channels=2),
    ):
        array = places.add_array(wanted)
        width, rows, slices = array.extent
        start, end = (
            places.add_host(slices, rows + more, width * 4 + 4 * more, pinned)
            for more, pinned in ((1, True), (2, False))
        )
        size, begin = (width, rows, slices), (0, 0, 0)
        into = Drawn(start, array, begin, begin, size, 4)
        out = Drawn(array, end, begin, (1, 1, 0), size, 4)
        graph = _Copies(places, [into, out], captured=False)
        for _ in range(2):
            start.model[:] = places.fresh(*start.model.shape)
            places.write(start)
            graph.launch()
            places.check()
        graph.destroy()
