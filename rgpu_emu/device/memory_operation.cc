#include "rgpu_emu/device/memory_operation.h"

#include "rgpu_common/native/base/batches.h"
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

struct Word {
  uint64_t address;
  uint64_t value;
  bool wide;
};

void Store(void* argument) {
  const auto* word = static_cast<const Word*>(argument);
  if (word->wide) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word->address), word->value, __ATOMIC_SEQ_CST);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(word->address), static_cast<uint32_t>(word->value),
                     __ATOMIC_SEQ_CST);
  }
}

CUresult Write(Word word) {
  Fault fault;
  return RunGuarded(&Store, &word, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult CheckWord(CUdeviceptr address, uint64_t bytes) {
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const PointerKind kind = KindOf(address, bytes);
  return kind == PointerKind::kDevice || kind == PointerKind::kPinned ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult CheckOperation(const MemoryOperation& operation) {
  const CUresult bad = base::CheckMemoryOperation(operation);
  const uint32_t width = base::WidthOf(operation);
  return bad != CUDA_SUCCESS || width == 0 ? bad : CheckWord(operation.waitValue.address, width);
}

CUresult RunOperation(const Context& context, const MemoryOperation& operation) {
  const auto& word = operation.waitValue;  // writes have the same layout
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return TheDevice().values.Wait(context, {word.address, word.value, word.flags, false});
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return TheDevice().values.Wait(context, {word.address, word.value64, word.flags, true});
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return Write({word.address, word.value, false});
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return Write({word.address, word.value64, true});
    default:
      return CUDA_SUCCESS;  // a barrier: all writes of the device are visible in order
  }
}

}  // namespace rgpu::emu
