// From the parameters of copies with rows and slices to Copy, and back to those of a node.
#pragma once

#include "rgpu_client/shim/calls/copies.h"
#include "rgpu_common/native/base/box_copy.h"

namespace rgpu::shim {

// Checks that the arrays exist and hold the box. CheckSides checks the sides in linear memory.
CUresult CopyOf(const base::BoxCopy& box, bool synchronous, Copy* copy);

// Null: there is no such array.
Array* FindArray(CUarray handle);

// The copy that a node of a graph makes, with both sides checked. A height or depth of 0 counts
// as 1. Rows without gaps are joined.
CUresult CopyOfNode(const Here& here, const CUDA_MEMCPY3D& node, Copy* copy);

// The parameters of the node that makes this copy.
CUDA_MEMCPY3D NodeOf(const Copy& copy);

}  // namespace rgpu::shim
