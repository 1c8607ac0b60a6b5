// Handlers: copies from the host and within the device, and sets. All are issued asynchronously, so
// that the decoder never waits in the driver; a fence gives a synchronous copy its promised order.
#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/boxes.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/in_place.h"
#include "rgpu_server/executor/long_copies.h"
#include "rgpu_server/executor/page_traffic.h"

namespace rgpu::exec {

CUresult CopyIn(const Driver& driver, const Rows& rows, const Portion& portion, const uint8_t* from,
                CUstream stream) {
  const bool flat = rows.linear() && portion.depth == 1;
  if (flat && portion.height == 1) {
    return driver->cuMemcpyHtoDAsync_v2(portion.address, from, portion.width, stream);
  }
  if (!flat) {
    const CUDA_MEMCPY3D box = ParamsIn(rows, portion, from);
    return driver->cuMemcpy3DAsync_v2(&box, stream);
  }
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.srcPitch = portion.width;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = portion.address;
  copy.dstPitch = rows.pitch;
  copy.WidthInBytes = portion.width;
  copy.Height = portion.height;
  return driver->cuMemcpy2DAsync_v2(&copy, stream);
}

CUresult CopyOut(const Driver& driver, const Rows& rows, const Portion& portion, uint8_t* to,
                 CUstream stream) {
  const bool flat = rows.linear() && portion.depth == 1;
  if (flat && portion.height == 1) {
    return driver->cuMemcpyDtoHAsync_v2(to, portion.address, portion.width, stream);
  }
  if (!flat) {
    const CUDA_MEMCPY3D box = ParamsOut(rows, portion, to);
    return driver->cuMemcpy3DAsync_v2(&box, stream);
  }
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = portion.address;
  copy.srcPitch = rows.pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.dstPitch = portion.width;
  copy.WidthInBytes = portion.width;
  copy.Height = portion.height;
  return driver->cuMemcpy2DAsync_v2(&copy, stream);
}

CUresult CheckRows(Executor& executor, const Rows& rows, uint64_t* total) {
  if (!rows.Total(total)) return CUDA_ERROR_INVALID_VALUE;
  if (!rows.linear() || *total == 0) return CUDA_SUCCESS;
  const Ranges& ranges = executor.objects().ranges;
  if (rows.depth == 1) {
    return ranges.CheckRows(rows.address, rows.pitch, rows.width, rows.height);
  }
  // All slices count as rows from the first to the last, with the gaps between the slices.
  uint64_t height = 0;
  if (rows.rows < rows.height || __builtin_mul_overflow(rows.depth - 1, rows.rows, &height) ||
      __builtin_add_overflow(height, rows.height, &height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return ranges.CheckRows(rows.address, rows.pitch, rows.width, height);
}

CUresult CopyFromBulk(Executor& executor, const Command& command, const Target& target,
                      const Rows& rows, bool synchronous) {
  uint64_t total = 0;
  CUresult result = CheckRows(executor, rows, &total);
  if (result != CUDA_SUCCESS) return result;
  if (total != command.bulk.size) return CUDA_ERROR_INVALID_VALUE;
  if (total == 0) return CUDA_SUCCESS;
  if (command.in_place) {
    executor.ledger().CountCopy(total);
    CountArrival(executor, command, *target.stream);
    return CUDA_SUCCESS;
  }
  if (command.keep == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;  // staging memory was full
  executor.ledger().CountCopy(total);
  result = executor.order().Issue(
      *target.stream,
      {total, command.keep,
       CountedCopy(executor, *target.stream, executor.copies().in, total, total), total},
      [&](CUstream stream) {
        const Portion all{rows.address, 0, rows.width, rows.height, rows.depth, rows.place};
        return CopyIn(executor.driver(), rows, all, command.bulk.data, stream);
      });
  // If the device has taken this piece already, the next piece gets the same staging memory.
  if (total > kSmallBytes) executor.order().Reclaim(*target.stream);
  if (result == CUDA_SUCCESS && synchronous) target.stream->fence_pending = true;
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyHtoD_Request& request,
             rgpuCopyHtoD_Reply*) {
  Target target;
  const CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  return CopyFromBulk(executor, command, target,
                      {request.dst, request.pitch, request.width, request.height},
                      request.synchronous != 0);
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyDtoD_Request& request,
             rgpuCopyDtoD_Reply*) {
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  uint64_t total = 0;
  result =
      CheckRows(executor, {request.dst, request.dst_pitch, request.width, request.height}, &total);
  if (result == CUDA_SUCCESS) {
    result = CheckRows(executor, {request.src, request.src_pitch, request.width, request.height},
                       &total);
  }
  if (result != CUDA_SUCCESS || total == 0) return result;
  executor.ledger().CountCopy(total);
  const Driver& driver = executor.driver();
  result = executor.order().Issue(
      *target.stream, {0, nullptr, &executor.copies().within, total}, [&](CUstream stream) {
        if (request.height == 1) {
          return driver->cuMemcpyDtoDAsync_v2(request.dst, request.src, request.width, stream);
        }
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = request.src;
        copy.srcPitch = request.src_pitch;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = request.dst;
        copy.dstPitch = request.dst_pitch;
        copy.WidthInBytes = request.width;
        copy.Height = request.height;
        return driver->cuMemcpy2DAsync_v2(&copy, stream);
      });
  if (result == CUDA_SUCCESS && request.synchronous != 0) target.stream->fence_pending = true;
  return result;
}

namespace {

CUresult Set(const Driver& driver, const rgpuMemset_Request& request, CUstream stream) {
  const auto byte = static_cast<unsigned char>(request.value);
  const auto half = static_cast<unsigned short>(request.value);
  const bool flat = request.height == 1;
  const CUdeviceptr dst = request.dst;
  const size_t pitch = request.pitch;
  const size_t width = request.width;
  const size_t height = request.height;
  switch (request.element_bytes) {
    case 1:
      return flat ? driver->cuMemsetD8Async(dst, byte, width, stream)
                  : driver->cuMemsetD2D8Async(dst, pitch, byte, width, height, stream);
    case 2:
      return flat ? driver->cuMemsetD16Async(dst, half, width, stream)
                  : driver->cuMemsetD2D16Async(dst, pitch, half, width, height, stream);
    default:
      return flat ? driver->cuMemsetD32Async(dst, request.value, width, stream)
                  : driver->cuMemsetD2D32Async(dst, pitch, request.value, width, height, stream);
  }
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuMemset_Request& request,
             rgpuMemset_Reply*) {
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t element = request.element_bytes;
  uint64_t width = 0;
  uint64_t total = 0;
  if ((element != 1 && element != 2 && element != 4) ||
      __builtin_mul_overflow(request.width, uint64_t{element}, &width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  result = CheckRows(executor, {request.dst, request.pitch, width, request.height}, &total);
  if (result != CUDA_SUCCESS || total == 0) return result;
  result = executor.order().Issue(
      *target.stream, {0, nullptr, &executor.copies().set, total},
      [&](CUstream stream) { return Set(executor.driver(), request, stream); });
  if (result == CUDA_SUCCESS && request.synchronous != 0) target.stream->fence_pending = true;
  return result;
}

namespace {

void FetchPull(void* pull) {
  auto* wanted = static_cast<Pull*>(pull);
  const Gate::ClientWait waits(wanted->executor->gate(), wanted->wait_place);
  wanted->executor->AwaitInStream(&wanted->frontier);
  wanted->executor->pulls().Fetch(wanted);
}

}  // namespace

CUresult PullIn(Executor& executor, const Command& command, const Target& target, const Rows& rows,
                bool* asks) {
  uint64_t total = 0;
  CUresult result = CheckRows(executor, rows, &total);
  if (result != CUDA_SUCCESS || total == 0) return result;
  if (IsLong(*target.context->staging, total)) {
    executor.ledger().CountCopy(total);
    result = StartLongIn(executor, command, target, rows);
    *asks = result == CUDA_SUCCESS;
    return result;
  }
  auto pull = std::make_shared<Pull>();
  pull->command = command.header;
  std::vector<Portion> portions;
  for (uint64_t offset = 0; offset < total;) {
    portions.push_back(PortionAt(rows, offset));
    offset += portions.back().bytes();
    Piece piece;
    result = target.context->staging->Take(portions.back().bytes(), &piece);
    if (result != CUDA_SUCCESS) return result;
    pull->pieces.push_back(std::move(piece));
  }
  executor.pulls().Add(pull);
  executor.ledger().CountCopy(total);
  const Driver& driver = executor.driver();
  result = executor.order().Issue(*target.stream, {0, pull}, [&](CUstream) {
    pull->frontier = target.stream->frontier;
    const CUresult launched =
        executor.order().LaunchWait(*target.stream, FetchPull, pull.get(), &pull->wait_place);
    *asks = launched == CUDA_SUCCESS;
    return launched;
  });
  for (size_t i = 0; i < portions.size() && result == CUDA_SUCCESS; ++i) {
    result = executor.order().Issue(
        *target.stream, {portions[i].bytes(), pull, &executor.copies().in, portions[i].bytes()},
        [&](CUstream stream) {
          return CopyIn(driver, rows, portions[i], pull->pieces[i].data, stream);
        });
  }
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyHtoDPull_Request& request,
             rgpuCopyHtoDPull_Reply*) {
  bool asks = false;
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) {
    const Rows rows{request.dst, request.pitch, request.width, request.height};
    result = PullIn(executor, command, target, rows, &asks);
  }
  if (!asks) FailDelivery(executor, command, result);
  return result;
}

}  // namespace rgpu::exec
