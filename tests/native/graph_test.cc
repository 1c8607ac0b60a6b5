// The shared model of graphs: capture, updates, memory, copies. Pure, so each test is a story.
#include "rgpu_common/native/graph/graph.h"

#include <array>
#include <vector>

#include "rgpu_common/native/graph/capture.h"
#include "rgpu_common/native/graph/compare.h"
#include "rgpu_common/native/graph/dot.h"
#include "rgpu_common/native/graph/instance.h"
#include "rgpu_common/native/graph/memory.h"
#include "tests/native/testing.h"

namespace rgpu::graph {
namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
const auto kContext = reinterpret_cast<CUcontext>(0x100);
const auto kOtherContext = reinterpret_cast<CUcontext>(0x200);

const StreamSite kLegacy{1, StreamKind::kLegacy, kContext};
const StreamSite kMain{10, StreamKind::kBlocking, kContext};
const StreamSite kSide{11, StreamKind::kNonBlocking, kContext};
const StreamSite kThird{12, StreamKind::kNonBlocking, kContext};
constexpr uint64_t kEvent = 7;
constexpr uint64_t kOtherEvent = 8;

// One capture after the other, with streams and events by name.
struct Story {
  Captures captures;

  std::shared_ptr<Graph> Begin(const StreamSite& stream, CUstreamCaptureMode mode = kGlobal,
                               ThreadId thread = 1) {
    auto graph = std::make_shared<Graph>();
    CHECK_EQ(captures.Begin(stream, thread, mode, graph, {}), CUDA_SUCCESS);
    return graph;
  }
  Node* Work(const StreamSite& stream) {
    bool captured = false;
    CHECK_EQ(captures.Route(stream, &captured), CUDA_SUCCESS);
    CHECK(captured);
    return captures.Add(stream, EmptyParams{});
  }
  CUresult Record(uint64_t event, const StreamSite& stream) {
    bool captured = false;
    return captures.Record(event, stream, &captured);
  }
  CUresult Wait(const StreamSite& stream, uint64_t event, bool recorded = true) {
    bool captured = false;
    return captures.Wait(stream, event, recorded, &captured);
  }
  CUresult End(const StreamSite& stream, ThreadId thread = 1) {
    return captures.End(stream, thread).result;
  }
  CUstreamCaptureStatus Status(const StreamSite& stream) const {
    CaptureInfo info;
    CHECK_EQ(captures.Info(stream, &info), CUDA_SUCCESS);
    return info.status;
  }
};

TEST(graph, a_side_stream_is_joined_when_its_last_node_comes_before_the_origins) {
  Story story;
  const auto graph = story.Begin(kMain);
  const Node* first = story.Work(kMain);
  CHECK_EQ(story.Record(kEvent, kMain), CUDA_SUCCESS);
  CHECK_EQ(story.Wait(kSide, kEvent), CUDA_SUCCESS);
  const Node* side = story.Work(kSide);
  CHECK(side->before.size() == 1 && side->before[0].node == first);
  CHECK_EQ(story.Record(kOtherEvent, kSide), CUDA_SUCCESS);
  story.Work(kMain);
  CHECK_EQ(story.Wait(kMain, kOtherEvent), CUDA_SUCCESS);
  CHECK_EQ(story.Wait(kMain, kOtherEvent), CUDA_SUCCESS);  // a second time adds no edge
  const Node* last = story.Work(kMain);
  CHECK_EQ(last->before.size(), 2U);
  CHECK_EQ(story.End(kMain), CUDA_SUCCESS);
  CHECK_EQ(graph->edge_count(), 4U);
  CHECK(!story.captures.active() && story.captures.has_events());
  CHECK_EQ(story.captures.UseEvent(kEvent), CUDA_ERROR_CAPTURED_EVENT);
  story.captures.EventGone(kEvent);
  story.captures.EventGone(kOtherEvent);
  CHECK(!story.captures.has_events());
}

TEST(graph, work_of_a_side_stream_after_its_join_is_not_joined) {
  Story story;
  story.Begin(kMain);
  story.Work(kMain);
  story.Record(kEvent, kMain);
  story.Wait(kSide, kEvent);
  story.Work(kSide);
  story.Record(kOtherEvent, kSide);
  story.Wait(kMain, kOtherEvent);
  story.Work(kSide);
  CHECK_EQ(story.End(kMain), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK_EQ(story.Status(kSide), CU_STREAM_CAPTURE_STATUS_NONE);
}

// Which calls one capture forbids, by its mode, the caller's mode and the caller's thread.
TEST(graph, modes_say_who_may_make_unsafe_calls) {
  struct Row {
    CUstreamCaptureMode capture;
    ThreadId thread;
    CUstreamCaptureMode caller;
    bool allowed;
  };
  const std::array<Row, 11> rows{{
      {kGlobal, 1, kGlobal, false},
      {kGlobal, 1, kThreadLocal, false},
      {kGlobal, 1, kRelaxed, true},
      {kGlobal, 2, kGlobal, false},
      {kGlobal, 2, kThreadLocal, true},
      {kGlobal, 2, kRelaxed, true},
      {kThreadLocal, 1, kGlobal, false},
      {kThreadLocal, 1, kThreadLocal, false},
      {kThreadLocal, 2, kGlobal, true},
      {kRelaxed, 1, kGlobal, true},
      {kRelaxed, 2, kGlobal, true},
  }};
  for (const Row& row : rows) {
    Story story;
    story.Begin(kSide, row.capture);
    const CUresult result = story.captures.Unsafe(row.thread, row.caller);
    CHECK_EQ(result == CUDA_SUCCESS, row.allowed);
    CHECK_EQ(story.Status(kSide),
             row.allowed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQ(story.End(kSide), row.allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST(graph, only_relaxed_captures_end_in_another_thread) {
  Story story;
  story.Begin(kMain, kGlobal, 1);
  CHECK_EQ(story.End(kMain, 2), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CHECK_EQ(story.End(kMain, 1), CUDA_SUCCESS);
  story.Begin(kMain, kRelaxed, 1);
  CHECK_EQ(story.End(kMain, 2), CUDA_SUCCESS);
  CHECK_EQ(story.End(kMain, 1), CUDA_ERROR_ILLEGAL_STATE);
}

TEST(graph, the_legacy_stream_breaks_captures_of_blocking_streams_of_its_context) {
  Story story;
  story.Begin(kMain, kRelaxed);
  story.Begin(kThird, kRelaxed);
  bool captured = true;
  const StreamSite elsewhere{2, StreamKind::kLegacy, kOtherContext};
  CHECK_EQ(story.captures.Route(elsewhere, &captured), CUDA_SUCCESS);
  CHECK(!captured);
  CHECK_EQ(story.captures.Route(kLegacy, &captured), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK_EQ(story.End(kMain), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_EQ(story.End(kThird), CUDA_SUCCESS);
}

TEST(graph, nodes_that_are_gone_are_forgotten_by_streams_and_events) {
  Story story;
  const auto graph = story.Begin(kMain, kRelaxed);
  Node* node = story.Work(kMain);
  story.Record(kEvent, kMain);
  graph->Remove(node);
  story.captures.GraphChanged(graph.get());
  CHECK_EQ(story.Wait(kSide, kEvent), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  bool captured = false;
  CHECK_EQ(story.captures.Route(kMain, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_EQ(story.End(kMain), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(graph, a_capture_whose_stream_is_destroyed_gives_its_graph_back) {
  Story story;
  const auto graph = story.Begin(kMain, kRelaxed);
  story.Record(kEvent, kMain);
  story.Wait(kSide, kEvent);
  CHECK(story.captures.StreamGone(kSide) == nullptr);
  CHECK(story.captures.StreamGone(kMain) == graph);
  CHECK(!story.captures.active());
  // The event's capture is over.
  CHECK_EQ(story.Wait(kThird, kEvent), CUDA_ERROR_CAPTURED_EVENT);
  CHECK_EQ(story.Record(kEvent, kThird), CUDA_SUCCESS);
  CHECK_EQ(story.Wait(kThird, kEvent), CUDA_SUCCESS);
}

Params Launch(CUcontext context, int cooperative = 0) {
  KernelParams kernel;
  kernel.context = context;
  CUlaunchAttributeValue value{};
  value.cooperative = cooperative;
  SetAttribute(&kernel.attributes, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
  return kernel;
}

Params CopyOf(CUmemorytype from) {
  CopyParams copy;
  copy.copy.srcMemoryType = from;
  return copy;
}

TEST(graph, what_may_replace_the_parameters_of_a_node) {
  struct Row {
    Params before;
    Params after;
    CUgraphExecUpdateResult result;
  };
  const std::vector<Row> rows{
      {EmptyParams{}, EmptyParams{}, CU_GRAPH_EXEC_UPDATE_SUCCESS},
      {EmptyParams{}, HostParams{}, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED},
      {Launch(kContext), Launch(kContext), CU_GRAPH_EXEC_UPDATE_SUCCESS},
      {Launch(kContext), Launch(kOtherContext),
       CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE},
      {Launch(kContext), Launch(kContext, 1), CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED},
      {CopyOf(CU_MEMORYTYPE_HOST), CopyOf(CU_MEMORYTYPE_HOST), CU_GRAPH_EXEC_UPDATE_SUCCESS},
      {CopyOf(CU_MEMORYTYPE_HOST), CopyOf(CU_MEMORYTYPE_DEVICE),
       CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED},
      {FreeParams{1}, FreeParams{2}, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED},
      {RecordParams{}, RecordParams{reinterpret_cast<CUevent>(1)}, CU_GRAPH_EXEC_UPDATE_SUCCESS},
  };
  for (const Row& row : rows) {
    Graph before;
    Graph after;
    const Node* node = before.Add(row.before, {});
    const Node* fresh = after.Add(row.after, {});
    const Difference found = Compare(before, after);
    const bool good = row.result == CU_GRAPH_EXEC_UPDATE_SUCCESS;
    CHECK_EQ(found.result, row.result);
    CHECK(found.node == (good ? nullptr : fresh));
    CHECK_EQ(MayReplace(*node, row.after) == CUDA_SUCCESS, good);
  }
}

TEST(graph, an_exchange_of_parameters_keeps_nodes_and_graphs) {
  const auto make = [](uint64_t value) {
    auto inner = std::make_shared<Graph>();
    inner->Add(FreeParams{value}, {});
    auto graph = std::make_shared<Graph>();
    graph->Add(FreeParams{value + 1}, {});
    graph->Add(ChildParams{inner}, {});
    return graph;
  };
  const auto one = make(10);
  const auto two = make(20);
  const Node* child = one->nodes()[1].get();
  const auto inner = InsideOf(*child)[0];
  SwapParams(one.get(), two.get());
  CHECK_EQ(std::get<FreeParams>(one->nodes()[0]->params).address, 21U);
  CHECK(InsideOf(*child)[0] == inner);
  CHECK_EQ(std::get<FreeParams>(inner->nodes()[0]->params).address, 20U);
  SwapParams(one.get(), two.get());
  CHECK_EQ(std::get<FreeParams>(inner->nodes()[0]->params).address, 10U);
}

TEST(graph, nodes_are_numbered_through_child_graphs) {
  auto inner = std::make_shared<Graph>();
  inner->Add(EmptyParams{}, {})->handle = 5;
  inner->Add(EmptyParams{}, {})->handle = 6;
  Graph graph;
  graph.Add(EmptyParams{}, {})->handle = 1;
  graph.Add(ChildParams{inner}, {})->handle = 2;
  graph.Add(EmptyParams{}, {})->handle = 3;
  const Instance instance = MakeInstance(Clone(graph), 0);
  const std::vector<uint64_t> order{1, 2, 5, 6, 3};
  CHECK_EQ(instance.nodes.size(), order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    uint32_t number = 99;
    CHECK(instance.Find(reinterpret_cast<CUgraphNode>(order[i]), &number));
    CHECK_EQ(number, i);
    CHECK_EQ(instance.nodes[i].node->handle, 0U);
  }
  // The owner of the original's child graph is still the original's node.
  CHECK(inner->owner == graph.nodes()[1].get());
}

TEST(graph, order_fits_the_edges_and_shows_cycles) {
  Graph graph;
  Node* a = graph.Add(EmptyParams{}, {});
  Node* b = graph.Add(EmptyParams{}, {});
  Node* c = graph.Add(EmptyParams{}, {});
  graph.Connect(c, a, {});
  CHECK(InOrder(graph) == std::vector<Node*>({b, c, a}));
  graph.Connect(a, c, {});
  CHECK_EQ(InOrder(graph).size(), 1U);
  CUgraphInstantiateResult why{};
  Node* where = nullptr;
  CHECK_EQ(CheckTemplate(graph, 0, &why, &where), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(why, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
  CHECK(where == a || where == c);
  CHECK(graph.Disconnect(a, c, {}) && !graph.Disconnect(a, c, {}));
  CHECK_EQ(CheckTemplate(graph, 0, &why, &where), CUDA_SUCCESS);
}

std::shared_ptr<Allocation> At(CUdeviceptr address) {
  auto allocation = std::make_shared<Allocation>();
  allocation->address = address;
  allocation->bytes = 64;
  return allocation;
}

TEST(graph, a_launch_changes_what_is_in_use_or_nothing) {
  Memory memory;
  const auto one = At(0x1000);
  memory.Know(one);
  auto graph = std::make_shared<Graph>();
  AllocParams alloc;
  alloc.allocation = one;
  graph->Add(alloc, {});
  graph->Add(FreeParams{0x2000}, {});
  const Instance instance = MakeInstance(graph, 0);
  Memory::Undo undo;
  CHECK_EQ(memory.Launch(instance, &undo), CUDA_ERROR_INVALID_VALUE);  // nothing at 0x2000
  CHECK_EQ(memory.used(0).now, 0U);
  auto other = std::make_shared<Graph>();
  AllocParams second;
  second.allocation = At(0x2000);
  memory.Know(second.allocation);
  other->Add(second, {});
  Memory::Undo kept;
  CHECK_EQ(memory.Launch(MakeInstance(other, 0), &kept), CUDA_SUCCESS);
  Memory::Undo launched;
  CHECK_EQ(memory.Launch(instance, &launched), CUDA_SUCCESS);
  CHECK_EQ(memory.used(0).now, 64U);
  CHECK_EQ(memory.used(0).high, 128U);
  memory.Revert(launched);
  CHECK(memory.Free(0x1000) == nullptr && memory.Free(0x2000) == second.allocation);
  CHECK_EQ(memory.used(0).now, 0U);
}

TEST(graph, the_text_of_a_graph_names_every_edge) {
  Graph graph;
  Node* a = graph.Add(HostParams{}, {});
  graph.Add(EmptyParams{}, {{a, {}}});
  const std::string text = DotText(graph, 0);
  CHECK(text.find("\"graph_0_node_0\" -> \"graph_0_node_1\"") != std::string::npos);
  CHECK(text.find("HOST") != std::string::npos && text.find("0x") == std::string::npos);
}

}  // namespace
}  // namespace rgpu::graph
