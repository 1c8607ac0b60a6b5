// Executable graphs: a frozen copy of the template, and what each library makes of it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rgpu_common/native/graph/graph.h"

namespace rgpu::graph {

// The frozen copy, with its nodes numbered: pre-order through child graphs and bodies, the nodes of
// a graph in the order in which they were added. The numbers name the nodes on the wire.
struct Instance {
  struct Entry {
    Node* node = nullptr;
    bool enabled = true;
  };

  std::shared_ptr<Graph> graph;
  std::shared_ptr<Graph> source;  // the template, kept only if it has memory nodes
  uint64_t flags = 0;
  std::vector<Entry> nodes;
  std::unordered_map<uint64_t, uint32_t> by_template;  // handle of the template's node -> number

  // Returns false if no node of the executable was made from this node of the template.
  bool Find(CUgraphNode node, uint32_t* number) const;
};

// Numbers the nodes of `graph`, a fresh copy of the template.
Instance MakeInstance(std::shared_ptr<Graph> graph, uint64_t flags);

// What cuGraphInstantiate checks: cycles, bodies, child graphs, limits.
CUresult CheckTemplate(const Graph& graph, uint64_t flags, CUgraphInstantiateResult* why,
                       Node** node);

// An executable of a library. `instance` is guarded by `mutex`. The functions below are called with
// `mutex` held, one at a time, without the model's lock.
class Exec {
 public:
  virtual ~Exec();

  uint64_t handle = 0;
  std::mutex mutex;
  Instance instance;

  // Parameters of the node changed, or whether it is enabled. `instance` has the new state. If the
  // library refuses it, the model puts the old state back.
  virtual CUresult NodeChanged(uint32_t number) = 0;
  // cuGraphExecUpdate succeeded in the model: all parameters may have changed. `handles_of`: the
  // graph whose conditional handles the nodes read now; 0: they read the same as before.
  virtual CUresult Updated(uint64_t handles_of) = 0;
  virtual CUresult Upload(CUstream stream) = 0;
  virtual CUresult Launch(CUstream stream) = 0;
};

}  // namespace rgpu::graph
