#include "rgpu_server/executor/graphs/build.h"

#include <algorithm>
#include <utility>

#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/graphs/params.h"
#include "rgpu_server/executor/graphs/plan.h"
#include "rgpu_server/executor/rows.h"

namespace rgpu::exec {

namespace {

// How many nodes the parts of a node count as, the node included.
uint64_t Weight(const wire::GraphNode& node) {
  if (const auto* kernel = std::get_if<wire::GraphKernel>(&node.parameters)) {
    return 1 + kernel->parameters.size / kParameterBytesAsNode;
  }
  const auto* batch = std::get_if<wire::GraphMemoryOperations>(&node.parameters);
  return batch == nullptr ? 1 : 1 + batch->operations.size() / kMemoryOperationsAsNode;
}

bool IsWork(const wire::GraphParameters& parameters) {
  return std::holds_alternative<wire::GraphKernel>(parameters) ||
         std::holds_alternative<wire::GraphCopy>(parameters) ||
         std::holds_alternative<wire::GraphSet>(parameters) ||
         std::holds_alternative<wire::GraphConditional>(parameters);
}

class Builder {
 public:
  Builder(Executor& executor, const std::shared_ptr<Context>& context, BuiltGraph* built)
      : executor_(executor),
        driver_(executor.driver()),
        context_(context),
        built_(built),
        operands_(executor, context) {}

  // `has_handles`: conditional handles were made for `graph`.
  CUresult Run(const wire::GraphDefinition& definition, CUgraph graph, bool has_handles);

 private:
  // The driver's nodes that a node became: what comes before it joins `first`, what comes behind
  // it joins `last`.
  struct Ends {
    CUgraphNode first = nullptr;
    CUgraphNode last = nullptr;
  };

  CUresult Fill(const wire::GraphDefinition& graph, CUgraph into);
  CUresult AddNode(const wire::GraphNode& node, CUgraph into, Ends* ends);
  CUresult AddEdges(const GraphPlan& plan, const std::vector<Ends>& ends, CUgraph into);
  CUresult Add(const wire::GraphNode&, const wire::GraphEmpty&, CUgraph into, CUgraphNode* made) {
    return driver_->cuGraphAddEmptyNode(made, into, nullptr, 0);
  }
  CUresult Add(const wire::GraphNode& node, const wire::GraphKernel&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphCopy&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphSet&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphHostFunction&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphEventRecord&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphEventWait&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphMemoryOperations&, CUgraph,
               CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphChild&, CUgraph, CUgraphNode*);
  CUresult Add(const wire::GraphNode& node, const wire::GraphConditional&, CUgraph, CUgraphNode*);
  CUresult AddHostCopy(const wire::GraphNode& node, const wire::GraphCopy& copy, CUgraph into,
                       Ends* ends);
  CUresult AddValueWait(const wire::GraphNode& node, CUgraph into, Ends* ends);
  CUresult AddHalt(GraphStep* step, CUgraph into, CUgraphNode* made);
  CUresult AddStep(GraphStep* step, CUgraph into, Ends* ends);
  CUresult AddPortion(const wire::GraphNode& node, const wire::GraphCopy& copy,
                      const CopyParams& params, const Portion& portion, uint8_t* staging,
                      CUgraph into, Ends* ends);
  CUresult Follow(CUgraph into, CUgraphNode node, Ends* ends);

  ExecNode& Kept(const wire::GraphNode& node) { return built_->nodes[node.number]; }

  Executor& executor_;
  const Driver& driver_;
  const std::shared_ptr<Context> context_;
  BuiltGraph* const built_;
  GraphOperands operands_;
  bool has_handles_ = false;
  bool halts_ = false;                 // at nodes that wait for values
  std::vector<uint64_t> host_offset_;  // by node: where its bytes are among those of all host sides
};

CUresult Builder::Run(const wire::GraphDefinition& definition, CUgraph graph, bool has_handles) {
  has_handles_ = has_handles;
  halts_ = ValuesInLine(definition);
  uint64_t offset = 0;
  uint64_t most = 0;  // bytes of one host side
  ForEachNode(definition, [&](const wire::GraphNode& node) {
    host_offset_.push_back(offset);
    const auto* copy = std::get_if<wire::GraphCopy>(&node.parameters);
    uint64_t bytes = 0;
    if (copy != nullptr && copy->has_host_side() && BytesOf(*copy, &bytes)) {
      offset += bytes;
      most = std::max(most, bytes);
    }
    built_->enabled->push_back(node.enabled);
  });
  built_->nodes.resize(host_offset_.size());
  CUresult result = built_->steps->Reserve(*context_->staging, most);
  if (result == CUDA_SUCCESS) result = Fill(definition, graph);
  built_->steps->Close();
  built_->contexts = operands_.contexts();
  return result;
}

CUresult Builder::Fill(const wire::GraphDefinition& graph, CUgraph into) {
  GraphPlan plan;
  if (!PlanGraph(graph, &plan, halts_)) return CUDA_ERROR_INVALID_VALUE;
  if (!built_->budget->Take(plan.edges.size() / kEdgesAsNode)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<Ends> ends(graph.nodes.size());
  for (const uint32_t place : plan.order) {
    const wire::GraphNode& node = graph.nodes[place];
    const CUresult result = AddNode(node, into, &ends[place]);
    if (result == CUDA_SUCCESS) continue;
    if (!built_->failed) built_->failed = node.number;
    return result;
  }
  const CUresult result = AddEdges(plan, ends, into);
  built_->plans.push_back(std::move(plan));
  return result;
}

CUresult Builder::AddNode(const wire::GraphNode& node, CUgraph into, Ends* ends) {
  ExecNode& kept = Kept(node);
  kept.kind = node.parameters.index();
  built_->works = built_->works || IsWork(node.parameters);
  const auto* copy = std::get_if<wire::GraphCopy>(&node.parameters);
  if (copy != nullptr && copy->has_host_side()) return AddHostCopy(node, *copy, into, ends);
  if (std::holds_alternative<wire::GraphMemoryOperations>(node.parameters)) {
    kept.may_wait = !halts_ || WaitsForValue(node);
    if (halts_ && kept.may_wait) return AddValueWait(node, into, ends);
  }
  if (!built_->budget->Take(Weight(node))) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result =
      std::visit([&](const auto& parameters) { return Add(node, parameters, into, &kept.own); },
                 node.parameters);
  *ends = {kept.own, kept.own};
  return result;
}

CUresult Builder::AddEdges(const GraphPlan& plan, const std::vector<Ends>& ends, CUgraph into) {
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;
  std::vector<CUgraphEdgeData> data;
  bool plain = true;
  for (const wire::GraphEdge& edge : plan.edges) {
    from.push_back(ends[edge.from].last);
    to.push_back(ends[edge.to].first);
    CUgraphEdgeData one{};
    one.from_port = edge.from_port;
    one.to_port = edge.to_port;
    one.type = edge.type;
    plain = plain && edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
    data.push_back(one);
  }
  if (from.empty()) return CUDA_SUCCESS;
  return driver_->cuGraphAddDependencies_v2(into, from.data(), to.data(),
                                            plain ? nullptr : data.data(), from.size());
}

CUresult Builder::Add(const wire::GraphNode& node, const wire::GraphKernel& kernel, CUgraph into,
                      CUgraphNode* made) {
  KernelParams params;
  CUresult result = operands_.Kernel(kernel, &params);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuGraphAddKernelNode_v2(made, into, nullptr, 0, &params.driver);
  Kept(node).code = params.function->code;
  built_->predicted_ns += params.function->estimate->Predict(1);
  if (result != CUDA_SUCCESS || !kernel.cooperative) return result;
  CUkernelNodeAttrValue value{};
  value.cooperative = 1;
  return driver_->cuGraphKernelNodeSetAttribute(*made, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
}

CUresult Builder::Add(const wire::GraphNode& node, const wire::GraphCopy& copy, CUgraph into,
                      CUgraphNode* made) {
  CopyParams params;
  const CUresult result = operands_.Copy(copy, &params);
  if (result != CUDA_SUCCESS) return result;
  Kept(node).arrays = std::move(params.arrays);
  built_->predicted_ns += executor_.copies().within->Predict(copy.width * copy.height * copy.depth);
  return driver_->cuGraphAddMemcpyNode(made, into, nullptr, 0, &params.driver, params.context);
}

CUresult Builder::Add(const wire::GraphNode&, const wire::GraphSet& set, CUgraph into,
                      CUgraphNode* made) {
  CUDA_MEMSET_NODE_PARAMS params;
  CUcontext context = nullptr;
  const CUresult result = operands_.Set(set, &params, &context);
  if (result != CUDA_SUCCESS) return result;
  built_->predicted_ns +=
      executor_.copies().set->Predict(set.width * set.height * set.element_bytes);
  return driver_->cuGraphAddMemsetNode(made, into, nullptr, 0, &params, context);
}

CUresult Builder::Add(const wire::GraphNode& node, const wire::GraphHostFunction&, CUgraph into,
                      CUgraphNode* made) {
  return AddHalt(built_->steps->Add(GraphStep::Kind::kCall, node.number), into, made);
}

CUresult Builder::Add(const wire::GraphNode& node, const wire::GraphEventRecord& record,
                      CUgraph into, CUgraphNode* made) {
  CUevent event = nullptr;
  const CUresult result = operands_.EventOf(record.event, &Kept(node).records, &event);
  if (result != CUDA_SUCCESS) return result;
  return driver_->cuGraphAddEventRecordNode(made, into, nullptr, 0, event);
}

CUresult Builder::Add(const wire::GraphNode& node, const wire::GraphEventWait& wait, CUgraph into,
                      CUgraphNode* made) {
  CUevent event = nullptr;
  const CUresult result = operands_.EventOf(wait.event, &Kept(node).waits_for, &event);
  if (result != CUDA_SUCCESS) return result;
  built_->hides_order = true;
  return driver_->cuGraphAddEventWaitNode(made, into, nullptr, 0, event);
}

CUresult Builder::Add(const wire::GraphNode&, const wire::GraphMemoryOperations& batch,
                      CUgraph into, CUgraphNode* made) {
  std::vector<CUstreamBatchMemOpParams> operations;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params;
  const CUresult result = operands_.MemoryOperations(batch, &operations, &params);
  if (result != CUDA_SUCCESS) return result;
  built_->hides_order = true;
  return driver_->cuGraphAddBatchMemOpNode(made, into, nullptr, 0, &params);
}

// The driver copies a graph that becomes a child. So an empty one becomes the child, and the nodes
// are added to the copy: their handles stay valid.
CUresult Builder::Add(const wire::GraphNode&, const wire::GraphChild& child, CUgraph into,
                      CUgraphNode* made) {
  CUgraph empty = nullptr;
  CUresult result = driver_->cuGraphCreate(&empty, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuGraphAddChildGraphNode(made, into, nullptr, 0, empty);
  driver_->cuGraphDestroy(empty);
  CUgraph inside = nullptr;
  if (result == CUDA_SUCCESS) result = driver_->cuGraphChildGraphNodeGetGraph(*made, &inside);
  return result == CUDA_SUCCESS ? Fill(child.graph, inside) : result;
}

CUresult Builder::Add(const wire::GraphNode& node, const wire::GraphConditional& conditional,
                      CUgraph into, CUgraphNode* made) {
  // A body may run any number of times, and a step once.
  if (WaitsForClient(node)) return CUDA_ERROR_NOT_SUPPORTED;
  if (conditional.bodies.empty()) return CUDA_ERROR_INVALID_VALUE;
  // Its handle belongs to the graph for which it was made.
  if (!has_handles_) return CUDA_ERROR_NOT_SUPPORTED;
  if (driver_->cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = conditional.handle;
  params.conditional.type = static_cast<CUgraphConditionalNodeType>(conditional.type);
  params.conditional.size = static_cast<unsigned int>(conditional.bodies.size());
  CUresult result = operands_.ContextOf(conditional.context, &params.conditional.ctx);
  if (result == CUDA_SUCCESS) {
    result = driver_->cuGraphAddNode_v2(made, into, nullptr, nullptr, 0, &params);
  }
  for (size_t i = 0; i < conditional.bodies.size() && result == CUDA_SUCCESS; ++i) {
    result = Fill(conditional.bodies[i], params.conditional.phGraph_out[i]);
  }
  return result;
}

CUresult Builder::Follow(CUgraph into, CUgraphNode node, Ends* ends) {
  if (!built_->budget->Take()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUgraphNode before = std::exchange(ends->last, node);
  if (ends->first == nullptr) {
    ends->first = node;
    return CUDA_SUCCESS;
  }
  return driver_->cuGraphAddDependencies_v2(into, &before, &node, nullptr, 1);
}

CUresult Builder::AddHalt(GraphStep* step, CUgraph into, CUgraphNode* made) {
  return context_->halts.AddNode(into, context_->handle, &GraphSteps::Run, step, made, &step->halt);
}

CUresult Builder::AddStep(GraphStep* step, CUgraph into, Ends* ends) {
  CUgraphNode made = nullptr;
  const CUresult result = AddHalt(step, into, &made);
  return result == CUDA_SUCCESS ? Follow(into, made, ends) : result;
}

// Becomes {step, the wait, step}: none of the graph's work is on the device in between.
CUresult Builder::AddValueWait(const wire::GraphNode& node, CUgraph into, Ends* ends) {
  CUgraphNode& own = Kept(node).own;
  if (!built_->budget->Take(Weight(node))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result =
      AddStep(built_->steps->Add(GraphStep::Kind::kValueBegin, node.number), into, ends);
  if (result == CUDA_SUCCESS) {
    result = Add(node, std::get<wire::GraphMemoryOperations>(node.parameters), into, &own);
  }
  if (result == CUDA_SUCCESS) result = Follow(into, own, ends);
  if (result != CUDA_SUCCESS) return result;
  return AddStep(built_->steps->Add(GraphStep::Kind::kValueEnd, node.number), into, ends);
}

CUresult Builder::AddPortion(const wire::GraphNode& node, const wire::GraphCopy& copy,
                             const CopyParams& params, const Portion& portion, uint8_t* staging,
                             CUgraph into, Ends* ends) {
  const CUDA_MEMCPY3D part = CopyOfPortion(copy, params.rows, portion, staging);
  CUgraphNode made = nullptr;
  const CUresult result =
      driver_->cuGraphAddMemcpyNode(&made, into, nullptr, 0, &part, params.context);
  if (result != CUDA_SUCCESS) return result;
  Kept(node).copies.push_back(made);
  return Follow(into, made, ends);
}

// Becomes groups of {step, copies} or {copies, step}. A group has as many portions as there are
// slots of staging memory.
CUresult Builder::AddHostCopy(const wire::GraphNode& node, const wire::GraphCopy& copy,
                              CUgraph into, Ends* ends) {
  CopyParams params;
  CUresult result = operands_.HostCopy(copy, &params);
  if (result != CUDA_SUCCESS) return result;
  std::vector<Portion> portions;
  if (!PortionsOf(params.rows, &portions)) return CUDA_ERROR_NOT_SUPPORTED;
  Kept(node).shape = copy;
  Kept(node).arrays = params.arrays;
  const std::vector<Piece>& slots = built_->steps->slots();
  const bool in = IsHost(copy.from);
  const auto kind = in ? GraphStep::Kind::kPull : GraphStep::Kind::kDeliver;
  uint64_t bytes = 0;
  for (size_t begin = 0; begin < portions.size(); begin += slots.size()) {
    const size_t end = std::min(begin + slots.size(), portions.size());
    GraphStep* step = built_->steps->Add(kind, node.number);
    for (size_t i = begin; i < end; ++i) {
      step->parts.push_back({slots[i - begin].data, portions[i].bytes(),
                             host_offset_[node.number] + portions[i].offset});
      bytes += portions[i].bytes();
    }
    if (in) result = AddStep(step, into, ends);
    for (size_t i = begin; i < end && result == CUDA_SUCCESS; ++i) {
      result = AddPortion(node, copy, params, portions[i], slots[i - begin].data, into, ends);
    }
    if (!in && result == CUDA_SUCCESS) result = AddStep(step, into, ends);
    if (result != CUDA_SUCCESS) return result;
  }
  const auto& kind_of_copy = in ? executor_.copies().in : executor_.copies().out;
  built_->predicted_ns += kind_of_copy->Predict(bytes);
  return CUDA_SUCCESS;
}

}  // namespace

void ReturnRoom(Executor& executor) {
  if (!NodeBudget::Ample() || !ExecPlace::AnyLeft()) executor.reaper().WaitForComplete();
}

CUresult BuildGraph(Executor& executor, const std::shared_ptr<Context>& context,
                    const wire::GraphDefinition& definition, CUgraph into, BuiltGraph* built) {
  const Driver& driver = executor.driver();
  built->steps = std::make_shared<GraphSteps>(executor);
  built->enabled = std::make_shared<std::vector<bool>>();
  built->graph = into;
  // An older driver lacks the functions of the graph API that are used here.
  if (driver->cuGraphAddDependencies_v2 == nullptr || driver->cuGraphExecUpdate_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult result = into == nullptr ? driver->cuGraphCreate(&built->graph, 0) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  result = Builder(executor, context, built).Run(definition, built->graph, into != nullptr);
  if (result != CUDA_SUCCESS && into == nullptr) {
    driver->cuGraphDestroy(std::exchange(built->graph, nullptr));
  }
  return result;
}

}  // namespace rgpu::exec
