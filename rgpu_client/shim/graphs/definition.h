// From an executable graph of the model to what travels.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/graph_sides.h"
#include "rgpu_common/native/graph/instance.h"
#include "rgpu_common/native/wire/graph_definition.h"

namespace rgpu::shim {

// Parameters of kernels with the device's addresses in place of those of page-locked memory.
using ChangedParams = std::deque<std::vector<uint8_t>>;

// The whole graph. Kernel parameters point into `instance` and into `changed`.
CUresult Define(const Here& here, const graph::Instance& instance, ChangedParams* changed,
                wire::GraphDefinition* definition);
// One node without graphs inside.
CUresult DefineNode(const Here& here, const graph::Instance& instance, uint32_t number,
                    ChangedParams* changed, wire::GraphNode* node);
// What this process does while the graph runs.
std::shared_ptr<const GraphSides> SidesOf(const Here& here, const graph::Instance& instance);

}  // namespace rgpu::shim
