// The parameters of graph nodes, owned: everything that a call pointed to is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "gen/cuda_abi.gen.h"

namespace rgpu::graph {

class Graph;

// The most of each that a graph may have, with its child graphs and bodies. A definition that
// passes one of these is refused.
inline constexpr uint32_t kMaxNodes = 65536;
inline constexpr uint32_t kMaxEdges = 1048576;
inline constexpr uint32_t kMaxDepth = 16;
inline constexpr uint32_t kMaxBodies = 1024;           // of one conditional node
inline constexpr uint32_t kMaxMemoryOperations = 256;  // of one node

// One attribute of a kernel node that was set.
using Attributes = std::vector<std::pair<CUlaunchAttributeID, CUlaunchAttributeValue>>;

// Where a parameter of a kernel lies in its parameter bytes.
struct ParamPlace {
  uint32_t offset = 0;
  uint32_t size = 0;
};

struct KernelParams {
  CUfunction function = nullptr;  // as the program named it: a function, or
  CUkernel kernel = nullptr;      // a kernel of a library
  CUcontext context = nullptr;    // of the function; of a kernel where it runs
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<uint8_t> bytes;
  std::vector<ParamPlace> places;
  // `kernelParams` of the getters: pointers into `bytes`. Valid until the parameters change.
  std::vector<void*> pointers;
  Attributes attributes;
};

// True for the attributes of a launch that a kernel node has.
bool IsNodeAttribute(CUlaunchAttributeID id);
// Returns the value of an attribute that was set, or null.
const CUlaunchAttributeValue* FindAttribute(const Attributes& attributes, CUlaunchAttributeID id);
void SetAttribute(Attributes* attributes, CUlaunchAttributeID id,
                  const CUlaunchAttributeValue& value);
// Those that the node of a captured launch keeps.
Attributes NodeAttributes(const CUlaunchConfig& config);

struct CopyParams {
  CUDA_MEMCPY3D copy{};
  CUcontext context = nullptr;
};

struct SetParams {
  CUDA_MEMSET_NODE_PARAMS_v2 set{};  // with its context
};

struct HostParams {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

struct ChildParams {
  std::shared_ptr<Graph> graph;
};

struct EmptyParams {};

struct RecordParams {
  CUevent event = nullptr;
};

struct WaitParams {
  CUevent event = nullptr;
};

struct BatchParams {
  CUcontext context = nullptr;
  uint32_t flags = 0;
  std::vector<CUstreamBatchMemOpParams> operations;
};

// The memory of an alloc node. The host derives from it and frees the memory in its destructor.
// Its owners are the graph, the executables made from it, and the program while it is in use.
struct Allocation {
  virtual ~Allocation() = default;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  int device = 0;
};

struct AllocParams {
  CUmemPoolProps props{};
  std::vector<CUmemAccessDesc> access;
  size_t bytes = 0;
  std::shared_ptr<Allocation> allocation;
};

struct FreeParams {
  CUdeviceptr address = 0;
};

struct ConditionalParams {
  CUgraphConditionalHandle handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  CUcontext context = nullptr;
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<CUgraph> handles;  // of the bodies: the array that the program gets
};

using Params =
    std::variant<KernelParams, CopyParams, SetParams, HostParams, ChildParams, EmptyParams,
                 RecordParams, WaitParams, BatchParams, AllocParams, FreeParams, ConditionalParams>;

CUgraphNodeType TypeOf(const Params& params);

}  // namespace rgpu::graph
