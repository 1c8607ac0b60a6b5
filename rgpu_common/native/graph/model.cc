#include "rgpu_common/native/graph/model.h"

#include <atomic>

namespace rgpu::graph {

uint64_t NewHandle(HandleKind kind) {
  static std::atomic<uint64_t> next{1};
  return static_cast<uint64_t>(kind) << 40 | next.fetch_add(1, std::memory_order_relaxed) << 4;
}

Graph* Model::FindGraph(CUgraph graph) const {
  const auto it = all_graphs.find(Raw(graph));
  return it == all_graphs.end() ? nullptr : it->second;
}

Node* Model::FindNode(CUgraphNode node) const {
  const auto it = nodes.find(Raw(node));
  return it == nodes.end() ? nullptr : it->second;
}

std::shared_ptr<Exec> Model::FindExec(CUgraphExec exec) {
  const std::lock_guard lock(mutex);
  const auto it = execs.find(Raw(exec));
  return it == execs.end() ? nullptr : it->second;
}

void Model::Publish(Graph* graph) {
  graph->handle = NewHandle(HandleKind::kGraph);
  all_graphs[graph->handle] = graph;
  for (const auto& node : graph->nodes()) PublishNode(node.get());
}

void Model::PublishNode(Node* node) {
  node->handle = NewHandle(HandleKind::kNode);
  nodes[node->handle] = node;
  for (const auto& inside : InsideOf(*node)) Publish(inside.get());
  auto* conditional = std::get_if<ConditionalParams>(&node->params);
  if (conditional == nullptr) return;
  conditional->handles.clear();
  for (const auto& body : conditional->bodies)
    conditional->handles.push_back(As<CUgraph>(body->handle));
}

void Model::Withdraw(Graph* graph) {
  all_graphs.erase(graph->handle);
  captures.GraphChanged(graph);
  for (const auto& node : graph->nodes()) WithdrawNode(node.get());
}

void Model::WithdrawNode(Node* node) {
  nodes.erase(node->handle);
  captures.GraphChanged(node->graph);
  for (const auto& inside : InsideOf(*node)) Withdraw(inside.get());
}

Locked::~Locked() {
  lock_.unlock();
  dropped_.clear();
  RunDestructors(model_);
}

void RunDestructors(Model& model) {
  for (auto& object : TakeDead()) model.host.Destroyed(std::move(object));
}

}  // namespace rgpu::graph
