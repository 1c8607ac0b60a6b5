#include "rgpu_emu/device/set.h"

#include <algorithm>
#include <cstring>

#include "rgpu_emu/device/exec/fault_guard.h"

namespace rgpu::emu {
namespace {

template <class T>
void FillRow(uint64_t row, const SetPlan& plan) {
  auto* at = reinterpret_cast<T*>(row);
  std::fill_n(at, plan.width, static_cast<T>(plan.value));
}

void FillRows(void* argument) {
  const SetPlan& plan = *static_cast<const SetPlan*>(argument);
  for (uint64_t y = 0; y < plan.height; ++y) {
    const uint64_t row = plan.dst + y * plan.pitch;
    if (plan.element == 1)
      std::memset(reinterpret_cast<void*>(row), static_cast<int>(plan.value), plan.width);
    if (plan.element == 2) FillRow<uint16_t>(row, plan);
    if (plan.element == 4) FillRow<uint32_t>(row, plan);
  }
}

}  // namespace

CUresult Fill(SetPlan plan) {
  Fault fault;
  return RunGuarded(&FillRows, &plan, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult CheckSet(const SetPlan& plan, PointerKind* kind) {
  *kind = PointerKind::kInvalid;
  uint64_t row_bytes = 0;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(plan.width, plan.element, &row_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool rows = plan.height > 1;
  if (plan.dst % plan.element != 0) return CUDA_ERROR_INVALID_VALUE;
  if (rows && (plan.pitch < row_bytes || plan.pitch % plan.element != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (!SpanOf(plan.pitch, row_bytes, plan.height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return CUDA_SUCCESS;
  *kind = KindOf(plan.dst, bytes);
  const bool good = *kind != PointerKind::kInvalid && *kind != PointerKind::kPageable;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace rgpu::emu
