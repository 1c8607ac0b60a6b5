// Occupancy. The worker is asked once for each function and arguments.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/functions.h"

#include <algorithm>

namespace rgpu::shim {
namespace {

using Question = rgpuOccupancy_Request;
// What rgpuOccupancyBlockSize answers, in the keys of kept answers.
constexpr uint64_t kBlockSize = 2;

CUresult FunctionHere(CUfunction handle, Here* here, Function** function) {
  *function = nullptr;
  if (const CUresult status = ContextHere(here); status != CUDA_SUCCESS) return status;
  *function = FindFunction(handle);
  return *function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

using Key = std::array<uint64_t, 5>;

// Sets `*value` to the kept answer for `key`, or else calls `ask(uint64_t*)` and keeps its answer.
template <typename Ask>
CUresult Cached(Function& function, const Key& key, uint64_t* value, Ask ask) {
  {
    const std::lock_guard lock(function.mutex);
    const auto known = function.answers.find(key);
    if (known != function.answers.end()) {
      *value = known->second;
      return CUDA_SUCCESS;
    }
  }
  if (const CUresult status = ask(value); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(function.mutex);
  function.answers[key] = *value;
  return CUDA_SUCCESS;
}

CUresult Ask(const Here& here, Function& function, const rgpuOccupancy_Request& request,
             uint64_t* value) {
  const Key key = {static_cast<uint64_t>(request.what), static_cast<uint32_t>(request.block_size),
                   static_cast<uint32_t>(request.blocks), request.dynamic,
                   (uint64_t{here.context_id()} << 32) | request.flags};
  return Cached(function, key, value, [&](uint64_t* answer) {
    rgpuOccupancy_Reply reply;
    const CUresult status = here.channel().Call<op_rgpuOccupancy>(here.issuer(), request, &reply);
    *answer = reply.value;
    return status;
  });
}

// The dynamic shared memory that the program's callback wants for blocks of 1, 32, 64 ... threads.
std::vector<uint8_t> DynamicTable(CUoccupancyB2DSize callback, int limit) {
  std::vector<uint8_t> table;
  wire::Writer writer(&table);
  writer.Put(uint64_t{callback(1)});
  for (int size = 32; size <= limit; size += 32) writer.Put(uint64_t{callback(size)});
  return table;
}

}  // namespace

CUresult MaxActiveBlocks(const Here& here, Function& function, int block_size, uint64_t dynamic,
                         uint32_t flags, int* blocks) {
  rgpuOccupancy_Request request;
  request.function = FunctionOperand(function);
  request.kernel = KernelOperand(function);
  request.what = Question::kBlocksPerProcessor;
  request.block_size = block_size;
  request.dynamic = dynamic;
  request.flags = flags;
  uint64_t value = 0;
  const CUresult status = Ask(here, function, request, &value);
  if (status == CUDA_SUCCESS) *blocks = static_cast<int>(value);
  return status;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  Here here;
  Function* function = nullptr;
  const CUresult status = FunctionHere(func, &here, &function);
  if (status != CUDA_SUCCESS) return status;
  return MaxActiveBlocks(here, *function, blockSize, dynamicSMemSize, flags, numBlocks);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return shim::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                    dynamicSMemSize, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  Here here;
  Function* function = nullptr;
  CUresult status = FunctionHere(func, &here, &function);
  if (status != CUDA_SUCCESS) return status;
  rgpuOccupancy_Request request;
  request.function = FunctionOperand(*function);
  request.kernel = KernelOperand(*function);
  request.what = Question::kAvailableShared;
  request.block_size = blockSize;
  request.blocks = numBlocks;
  uint64_t value = 0;
  status = Ask(here, *function, request, &value);
  if (status == CUDA_SUCCESS) *dynamicSmemSize = value;
  return status;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  Here here;
  Function* function = nullptr;
  CUresult status = FunctionHere(func, &here, &function);
  if (status != CUDA_SUCCESS) return status;
  const Device& device = *here.session->devices().Find(here.context->device);
  const int threads = device.Attribute(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  const int limit = blockSizeLimit == 0 ? threads : std::min(blockSizeLimit, threads);
  std::vector<uint8_t> table;
  if (blockSizeToDynamicSMemSize != nullptr) {
    table = DynamicTable(blockSizeToDynamicSMemSize, limit);
  }
  const auto ask = [&](uint64_t* value) {
    rgpuOccupancyBlockSize_Reply reply;
    const CUresult answer = here.channel().Call<op_rgpuOccupancyBlockSize>(
        here.issuer(),
        {FunctionOperand(*function), KernelOperand(*function), dynamicSMemSize, limit, flags,
         wire::Bytes(table.data(), table.size())},
        &reply);
    *value = (static_cast<uint64_t>(static_cast<uint32_t>(reply.min_grid)) << 32) |
             static_cast<uint32_t>(reply.block_size);
    return answer;
  };
  uint64_t value = 0;
  const Key key = {kBlockSize, static_cast<uint32_t>(limit), 0, dynamicSMemSize,
                   (uint64_t{here.context_id()} << 32) | flags};
  status = table.empty() ? Cached(*function, key, &value, ask) : ask(&value);
  if (status != CUDA_SUCCESS) return status;
  *minGridSize = static_cast<int>(value >> 32);
  *blockSize = static_cast<int>(value & 0xffffffffU);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return shim::cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

}  // namespace rgpu::shim
