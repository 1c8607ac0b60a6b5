#include "rgpu_emu/device/exec/matrix_ops.h"

#include "rgpu_emu/device/exec/block_scheduler.h"

namespace rgpu::emu {

bool ResolveMatrix(const BlockInfo& block, ThreadState* lanes) {
  MatrixCall* calls[kWarpSize];
  for (uint32_t lane = 0; lane < kWarpSize; ++lane)
    calls[lane] = reinterpret_cast<MatrixCall*>(lanes[lane].value);
  switch (calls[0]->kind) {
    case kMatrixMma:
    case kMatrixWmma:
      return MultiplyMatrices(calls);
    case kMatrixQuads:
      return MultiplyQuads(calls);
    case kMatrixLoadA:
    case kMatrixLoadB:
    case kMatrixLoadC:
    case kMatrixStore:
      return MoveFragments(block, calls);
    case kMatrixLdmatrix:
    case kMatrixStmatrix:
    case kMatrixTranspose:
      return MoveRows(calls);
  }
  return false;
}

}  // namespace rgpu::emu
