// All graphs, executables, user objects and captures of a process.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rgpu_common/native/graph/capture.h"
#include "rgpu_common/native/graph/graph.h"
#include "rgpu_common/native/graph/host.h"
#include "rgpu_common/native/graph/instance.h"

namespace rgpu::graph {

// The arrays that the last cuStreamGetCaptureInfo of a stream returned.
struct CaptureArrays {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};

// The tables. Only the functions of calls*.cc and `Locked` touch them; the shim and the emulated
// device use the functions of calls.h, hooks.h and memory.h.
struct Model {
  explicit Model(Host* library) : host(*library) {}

  Host& host;
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Graph>> graphs;  // that the program must destroy
  std::unordered_map<uint64_t, Graph*> all_graphs;              // also inside of nodes
  std::unordered_map<uint64_t, Node*> nodes;
  std::unordered_map<uint64_t, std::shared_ptr<Exec>> execs;
  std::unordered_map<uint64_t, std::shared_ptr<UserObject>> objects;
  Captures captures;
  std::unordered_map<uint64_t, CaptureArrays> arrays;  // by stream
  // Memory of alloc nodes that the program may use now, by address.
  std::unordered_map<uint64_t, std::shared_ptr<Allocation>> in_use;
  // Memory of all alloc nodes that exist, by address.
  std::unordered_map<uint64_t, std::weak_ptr<Allocation>> allocations;

  Graph* FindGraph(CUgraph graph) const;
  Node* FindNode(CUgraphNode node) const;
  // Gives the graph, its nodes and everything inside of them handles.
  void Publish(Graph* graph);
  void PublishNode(Node* node);
  // Takes the handles away.
  void Withdraw(Graph* graph);
  void WithdrawNode(Node* node);
};

// Holds the model's lock. Its end runs the destructors of user objects that died meanwhile.
class Locked {
 public:
  explicit Locked(Model& model) : model_(model), lock_(model.mutex) {}
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Model& model_;
  std::unique_lock<std::mutex> lock_;
};

// Runs the destructors of dead user objects; for places that drop references without the lock.
void RunDestructors(Model& model);

}  // namespace rgpu::graph
