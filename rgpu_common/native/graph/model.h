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
#include "rgpu_common/native/graph/memory.h"

namespace rgpu::graph {

// The arrays that the last cuStreamGetCaptureInfo of a stream returned.
struct CaptureArrays {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};

// The tables. The shim and the emulated device use the functions of calls.h and hooks.h.
//
// Locks are taken in the order: an executable's, the model's. Under the model's lock nothing of the
// library or the program is called, and no object of theirs is destroyed.
struct Model {
  explicit Model(Host* library) : host(*library) {}

  Host& host;
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Graph>> graphs;  // that the program must destroy
  std::unordered_map<uint64_t, Graph*> all_graphs;              // also those inside of nodes
  std::unordered_map<uint64_t, Node*> nodes;
  std::unordered_map<uint64_t, std::shared_ptr<Exec>> execs;
  std::unordered_map<uint64_t, std::shared_ptr<UserObject>> objects;
  Captures captures;
  std::unordered_map<uint64_t, CaptureArrays> arrays;  // by stream
  Memory memory;

  Graph* FindGraph(CUgraph graph) const;
  Node* FindNode(CUgraphNode node) const;
  std::shared_ptr<Exec> FindExec(CUgraphExec exec);  // takes the lock
  // Gives the graph, its nodes and everything inside of them handles.
  void Publish(Graph* graph);
  void PublishNode(Node* node);
  // Takes the handles away.
  void Withdraw(Graph* graph);
  void WithdrawNode(Node* node);
};

enum class HandleKind : uint64_t { kGraph = 0x61, kNode, kExec, kUserObject };

// Values are never used twice in a process.
uint64_t NewHandle(HandleKind kind);

template <class H>
uint64_t Raw(H handle) {
  return reinterpret_cast<uint64_t>(handle);
}

template <class H>
H As(uint64_t value) {
  return reinterpret_cast<H>(value);
}

// Holds the model's lock. Its end destroys what was dropped meanwhile, without the lock, and runs
// the destructors of user objects that died.
class Locked {
 public:
  explicit Locked(Model& model) : model_(model), lock_(model.mutex) {}
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  void Drop(std::shared_ptr<void> object) { dropped_.push_back(std::move(object)); }

 private:
  Model& model_;
  std::vector<std::shared_ptr<void>> dropped_;
  std::unique_lock<std::mutex> lock_;
};

// Runs the destructors of dead user objects; for places that drop references without the lock.
void RunDestructors(Model& model);

}  // namespace rgpu::graph
