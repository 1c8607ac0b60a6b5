#include "rgpu_common/native/graph/params.h"

#include <algorithm>

namespace rgpu::graph {
namespace {

// The type of each alternative of Params, in their order.
constexpr CUgraphNodeType kTypes[] = {
    CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,     CU_GRAPH_NODE_TYPE_MEMSET,
    CU_GRAPH_NODE_TYPE_HOST,         CU_GRAPH_NODE_TYPE_GRAPH,      CU_GRAPH_NODE_TYPE_EMPTY,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC,    CU_GRAPH_NODE_TYPE_MEM_FREE,   CU_GRAPH_NODE_TYPE_CONDITIONAL,
};
static_assert(std::size(kTypes) == std::variant_size_v<Params>);

}  // namespace

CUgraphNodeType TypeOf(const Params& params) { return kTypes[params.index()]; }

const CUlaunchAttributeValue* FindAttribute(const Attributes& attributes, CUlaunchAttributeID id) {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [id](const auto& attribute) { return attribute.first == id; });
  return found == attributes.end() ? nullptr : &found->second;
}

void SetAttribute(Attributes* attributes, CUlaunchAttributeID id,
                  const CUlaunchAttributeValue& value) {
  for (auto& [known, old] : *attributes) {
    if (known == id) {
      old = value;
      return;
    }
  }
  attributes->emplace_back(id, value);
}

Attributes NodeAttributes(const CUlaunchConfig& config) {
  Attributes out;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (IsNodeAttribute(attribute.id)) SetAttribute(&out, attribute.id, attribute.value);
  }
  return out;
}

bool IsNodeAttribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

}  // namespace rgpu::graph
