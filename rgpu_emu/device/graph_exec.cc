#include "rgpu_emu/device/graph_exec.h"

#include <utility>

namespace rgpu::emu {
namespace {

void CollectValues(const graph::Graph& graph, std::vector<graph::ConditionalHandle>* out) {
  out->insert(out->end(), graph.conditionals.begin(), graph.conditionals.end());
  for (const auto& node : graph.nodes()) {
    for (const auto& inside : graph::InsideOf(*node)) CollectValues(*inside, out);
  }
}

}  // namespace

CUresult GraphExec::Make(graph::Instance made, std::shared_ptr<graph::Exec>* out) {
  auto exec = std::make_shared<GraphExec>();
  exec->instance = std::move(made);
  const CUresult compiled = exec->Compile(&exec->operations_);
  if (compiled != CUDA_SUCCESS) return compiled;
  exec->layout_ = LayOut(exec->instance);
  CollectValues(*exec->instance.graph, &exec->values_);
  *out = std::move(exec);
  return CUDA_SUCCESS;
}

CUresult GraphExec::CompileNode(uint32_t number, std::shared_ptr<const GraphOperation>* out) const {
  const graph::Instance::Entry& entry = instance.nodes[number];
  if (entry.enabled) return MakeOperation(entry.node->params, out);
  out->reset();
  return CUDA_SUCCESS;
}

CUresult GraphExec::Compile(Operations* out) const {
  out->resize(instance.nodes.size());
  for (uint32_t i = 0; i < out->size(); ++i) {
    const CUresult compiled = CompileNode(i, &(*out)[i]);
    if (compiled != CUDA_SUCCESS) return compiled;
  }
  return CUDA_SUCCESS;
}

CUresult GraphExec::NodeChanged(uint32_t number) {
  std::shared_ptr<const GraphOperation> operation;
  const CUresult compiled = CompileNode(number, &operation);
  if (compiled != CUDA_SUCCESS) return compiled;
  operations_[number] = std::move(operation);
  program_.reset();
  return CUDA_SUCCESS;
}

CUresult GraphExec::Updated(uint64_t) {
  Operations fresh;
  const CUresult compiled = Compile(&fresh);
  if (compiled != CUDA_SUCCESS) return compiled;
  values_.clear();
  CollectValues(*instance.graph, &values_);
  operations_ = std::move(fresh);
  program_.reset();
  return CUDA_SUCCESS;
}

const std::shared_ptr<const GraphProgram>& GraphExec::Program() {
  if (program_ == nullptr) {
    auto program = std::make_shared<GraphProgram>();
    program->layout = layout_;
    program->operations = operations_;
    program->values = values_;
    program_ = std::move(program);
  }
  return program_;
}

const std::shared_ptr<GraphLanes>& GraphExec::LanesIn(const std::shared_ptr<Context>& context) {
  if (lanes_ == nullptr || lanes_in_.lock() != context) {
    lanes_ = std::make_shared<GraphLanes>(context.get(), layout_->lanes.size() - 1);
    lanes_in_ = context;
  }
  return lanes_;
}

// Its nodes are compiled already.
CUresult GraphExec::Upload(CUstream operand) {
  std::shared_ptr<Stream> stream;
  const CUresult found = FindStream(operand, &stream);
  if (found == CUDA_SUCCESS) Program();
  return found;
}

CUresult GraphExec::Launch(CUstream operand) {
  std::shared_ptr<Stream> stream;
  const CUresult found = FindStream(operand, &stream);
  if (found != CUDA_SUCCESS) return found;
  const auto run =
      std::make_shared<GraphRun>(Program(), stream->context(), LanesIn(stream->context()));
  Command command;
  command.after.push_back(last_);
  command.run = [run] { return run->Run(); };
  Fence place;
  const CUresult pushed = stream->Push(std::move(command), &place);
  if (pushed != CUDA_SUCCESS) return pushed;
  run->PublishRecords();
  last_ = std::move(place);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
