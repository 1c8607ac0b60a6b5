// Matrix instructions of a whole warp: products in registers, and loads and stores of fragments.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

// Computes the matrix instruction that all 32 threads in `lanes` wait at. Returns false if it is
// unknown. It reads and writes device memory, so it owns nothing (see fault_guard.h).
bool ResolveMatrix(const BlockInfo& block, ThreadState* lanes);

using MatrixCalls = MatrixCall* const*;  // one for each lane

bool MultiplyMatrices(MatrixCalls calls);
bool MultiplyQuads(MatrixCalls calls);
bool MoveFragments(const BlockInfo& block, MatrixCalls calls);
bool MoveRows(MatrixCalls calls);

}  // namespace rgpu::emu
