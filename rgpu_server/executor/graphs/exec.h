// Executable graphs, and what the worker keeps of graphs that are not instantiated yet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rgpu_common/native/wire/graph_definition.h"
#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/gate/load.h"
#include "rgpu_server/executor/graphs/plan.h"
#include "rgpu_server/executor/graphs/steps.h"

namespace rgpu::exec {

struct Array;
struct Code;
struct Context;
class Executor;
struct Event;
struct Stream;

// For all graphs of the session. The worker and the driver keep each node in host memory, which no
// lease is charged for. What a node has besides counts as further nodes.
inline constexpr uint64_t kMaxSessionNodes = 512U << 10;
inline constexpr uint64_t kEdgesAsNode = 8;
inline constexpr uint64_t kParameterBytesAsNode = 512;
inline constexpr uint64_t kMemoryOperationsAsNode = 8;
inline constexpr size_t kMaxExecs = 16U << 10;

// What one graph takes of the nodes of all graphs of the session.
class NodeBudget {
 public:
  NodeBudget() = default;
  ~NodeBudget() { taken_of_session_ -= taken_; }
  NodeBudget(const NodeBudget&) = delete;
  NodeBudget& operator=(const NodeBudget&) = delete;

  // For the whole session, before its first graph.
  static void SetMost(uint64_t nodes) { most_of_session_ = nodes; }

  // More than any one graph takes is left, as a rule.
  static bool Ample() { return taken_of_session_ <= most_of_session_ / 2; }

  // False: the session has no room for so many more.
  bool Take(uint64_t count = 1) {
    if (count > most_of_session_ - taken_of_session_) return false;
    taken_ += count;
    taken_of_session_ += count;
    return true;
  }

 private:
  // A worker process serves one session. With the executor's lock.
  static inline uint64_t most_of_session_ = kMaxSessionNodes;
  static inline uint64_t taken_of_session_ = 0;
  uint64_t taken_ = 0;
};

// The values of the conditional handles of a graph. They are free for other graphs when the driver
// has destroyed the graph.
class ConditionalValues {
 public:
  explicit ConditionalValues(std::shared_ptr<Context> context);
  ~ConditionalValues();
  ConditionalValues(const ConditionalValues&) = delete;
  ConditionalValues& operator=(const ConditionalValues&) = delete;

  // Counts one more, and charges the lease for the memory that it may take. May release the lock.
  CUresult Add(Executor& executor);
  void Drop();
  bool empty() const { return count_ == 0; }

 private:
  const std::shared_ptr<Context> context_;
  uint64_t count_ = 0;
};

// The driver's graph that belongs to the conditional handles of a graph of the client.
struct GraphShell {
  std::shared_ptr<Context> context;
  CUgraph handle = nullptr;  // null: an executable graph has taken it
  std::shared_ptr<NodeBudget> budget = std::make_shared<NodeBudget>();  // one for each handle
  std::shared_ptr<ConditionalValues> values;
};

// Counts the executable graphs that the driver has: those of the client, and those that it has
// destroyed while they have work.
class ExecPlace {
 public:
  ExecPlace() { ++taken_; }
  ExecPlace(const ExecPlace&) : ExecPlace() {}
  ExecPlace& operator=(const ExecPlace&) = default;
  ~ExecPlace() { --taken_; }

  // False: there is one too many.
  static bool AnyLeft() { return taken_ <= kMaxExecs; }

 private:
  // A worker process serves one session. With the executor's lock.
  static inline uint64_t taken_ = 0;
};

// A node of an executable graph, by its number.
struct ExecNode {
  size_t kind = 0;            // index of wire::GraphParameters
  CUgraphNode own = nullptr;  // the driver's; null for a node that became steps and copies
  // Of a copy with a host side: its shape, and one driver's node for each portion.
  std::optional<wire::GraphCopy> shape;
  std::vector<CUgraphNode> copies;
  // It waits for a value in memory, or becomes such a wait by a change without more.
  bool may_wait = false;
  bool torn = false;  // a change has reached only some of them: the graph needs a new definition
  std::shared_ptr<Event> records;              // the event that it records
  std::shared_ptr<Event> waits_for;            // the event that it waits for
  std::shared_ptr<Code> code;                  // of its kernel
  std::vector<std::shared_ptr<Array>> arrays;  // that its copy names
};

// What building a driver's graph yields.
struct BuiltGraph {
  CUgraph graph = nullptr;
  std::vector<ExecNode> nodes;
  // Of the graph and of those inside, in the order in which the driver got them.
  std::vector<GraphPlan> plans;
  std::shared_ptr<GraphSteps> steps;
  std::vector<std::shared_ptr<Context>> contexts;  // that its nodes name
  std::shared_ptr<std::vector<bool>> enabled;
  bool works = false;        // it has work for the device, and not only waits, records and steps
  bool hides_order = false;  // it waits for events or for values in memory
  std::shared_ptr<NodeBudget> budget = std::make_shared<NodeBudget>();
  std::shared_ptr<ConditionalValues> values;  // null: it has no conditional handles
  uint64_t predicted_ns = 0;
  std::optional<uint32_t> failed;  // the node that could not be built
};

struct GraphExec {
  ExecPlace place;
  std::shared_ptr<Context> context;
  CUgraphExec handle = nullptr;
  BuiltGraph built;
  std::shared_ptr<Estimate> estimate;
  uint64_t flags = 0;
  uint64_t charged_bytes = 0;
  // Launches of an earlier driver's executable graph that this one has replaced.
  std::vector<std::shared_ptr<Point>> behind;
  // A point directly behind the newest launch, and that launch's stream, which is compared and
  // never dereferenced. Null: nothing that the worker must know of precedes the launch.
  std::shared_ptr<Point> last;
  const Stream* last_in = nullptr;
};

}  // namespace rgpu::exec
