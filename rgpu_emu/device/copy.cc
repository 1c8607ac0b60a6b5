#include "rgpu_emu/device/copy.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstring>
#include <vector>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/host_memory.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

// The call copies pageable sources up to this size at once. For larger ones it waits.
constexpr uint64_t kStageBytes = uint64_t{4} << 20;
// Asynchronous copies up to this size run on the calling thread if the stream is idle.
constexpr uint64_t kAtOnceBytes = uint64_t{1} << 20;
// Rows of at least this size are written to the device past the cache. Smaller rows are likely to
// be used from the cache.
constexpr uint64_t kStreamBytes = uint64_t{128} << 10;

bool IsHost(PointerKind kind) {
  return kind == PointerKind::kPageable || kind == PointerKind::kPinned;
}

bool Satisfies(PointerKind actual, PointerKind required) {
  if (actual == PointerKind::kInvalid) return false;
  if (required == PointerKind::kInvalid) return true;
  // With unified addresses a pinned pointer is valid where a device pointer is required, and any
  // pointer where a host pointer is required.
  if (required == PointerKind::kDevice) return actual != PointerKind::kPageable;
  return true;
}

// Copies past the cache: the destination's lines are not read first. That more than halves the time
// if the destination is not in the cache, as with large copies.
void StreamRow(uint8_t* dst, const uint8_t* src, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kLine = 64;
  const size_t before = (kLine - reinterpret_cast<uintptr_t>(dst) % kLine) % kLine;
  std::memcpy(dst, src, before);
  dst += before;
  src += before;
  bytes -= before;
  for (; bytes >= kLine; bytes -= kLine, dst += kLine, src += kLine) {
    __m128i line[4];
    std::memcpy(line, src, kLine);
    auto* to = reinterpret_cast<__m128i*>(dst);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(to + i, line[i]);
  }
  _mm_sfence();
#endif
  std::memcpy(dst, src, bytes);
}

void MoveRows(void* argument) {
  const CopyPlan& plan = *static_cast<const CopyPlan*>(argument);
  auto* dst = reinterpret_cast<uint8_t*>(plan.dst);
  const auto* src = reinterpret_cast<const uint8_t*>(plan.src);
  const bool upload = IsHost(plan.src_kind) && plan.dst_kind == PointerKind::kDevice;
  const auto move = [&](uint8_t* to, const uint8_t* from) {
    // Host memory and device memory never overlap.
    if (upload && plan.width >= kStreamBytes) return StreamRow(to, from, plan.width);
    std::memmove(to, from, plan.width);
  };
  for (uint64_t slice = 0; slice < plan.depth; ++slice) {
    for (uint64_t row = 0; row < plan.height; ++row) {
      move(dst + slice * plan.dst_slice + row * plan.dst_pitch,
           src + slice * plan.src_slice + row * plan.src_pitch);
    }
  }
}

// A fault in an asynchronous copy becomes an error of the context.
CUresult MoveLater(const CopyPlan& plan) {
  return MoveBytes(plan) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult Captured(const CopyPlan& plan, const std::shared_ptr<Stream>& stream) {
  auto rows = std::make_shared<std::vector<uint8_t>>(plan.width * plan.height * plan.depth);
  CopyPlan capture = plan;
  capture.dst = reinterpret_cast<uint64_t>(rows->data());
  capture.dst_pitch = plan.width;
  capture.dst_slice = plan.width * plan.height;
  const CUresult read = MoveBytes(capture);
  if (read != CUDA_SUCCESS) return read;
  CopyPlan rest = plan;
  rest.src = capture.dst;
  rest.src_pitch = plan.width;
  rest.src_slice = capture.dst_slice;
  Command command;
  command.run = [rows, rest] { return MoveLater(rest); };
  return stream->Push(std::move(command));
}

// The node of a copy that is captured.
CUresult MakeNode(const CopyPlan& plan, const Stream& stream, graph::Params* params) {
  graph::CopyParams node;
  CUDA_MEMCPY3D& copy = node.copy;
  copy.srcMemoryType = IsHost(plan.src_kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = IsHost(plan.dst_kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  if (IsHost(plan.src_kind)) copy.srcHost = reinterpret_cast<const void*>(plan.src);
  if (IsHost(plan.dst_kind)) copy.dstHost = reinterpret_cast<void*>(plan.dst);
  if (!IsHost(plan.src_kind)) copy.srcDevice = plan.src;
  if (!IsHost(plan.dst_kind)) copy.dstDevice = plan.dst;
  copy.srcPitch = plan.src_pitch;
  copy.dstPitch = plan.dst_pitch;
  copy.srcHeight = copy.dstHeight = copy.Height = plan.height;
  copy.WidthInBytes = plan.width;
  copy.Depth = 1;
  node.context = As<CUcontext>(stream.context()->handle);
  *params = node;
  return CUDA_SUCCESS;
}

}  // namespace

CopyPlan Linear(uint64_t dst, uint64_t src, uint64_t bytes) {
  CopyPlan plan;
  plan.dst = dst;
  plan.src = src;
  plan.width = bytes;
  plan.dst_pitch = bytes;
  plan.src_pitch = bytes;
  return plan;
}

bool SpanOf(uint64_t pitch, uint64_t width, uint64_t height, uint64_t* bytes) {
  *bytes = 0;
  if (width == 0 || height == 0) return true;
  uint64_t before = 0;
  return !__builtin_mul_overflow(pitch, height - 1, &before) &&
         !__builtin_add_overflow(before, width, bytes);
}

PointerKind KindOf(uint64_t address, uint64_t bytes) {
  const Arena& arena = TheDevice().arena;
  uint64_t end = 0;
  if (__builtin_add_overflow(address, bytes, &end)) return PointerKind::kInvalid;
  if (arena.Contains(address)) {
    const AllocationRef allocation = arena.Find(address);
    if (allocation != nullptr && allocation->kind == MemoryKind::kMapped) {
      const bool may = TheDevice().maps.MayAccess(address, bytes);
      return may ? PointerKind::kDevice : PointerKind::kInvalid;
    }
    if (allocation == nullptr || !allocation->Holds(address, bytes)) return PointerKind::kInvalid;
    return allocation->kind == MemoryKind::kHost ? PointerKind::kPinned : PointerKind::kDevice;
  }
  if (address < kPageBytes) return PointerKind::kInvalid;
  RegisteredMemory::Range range;
  const bool pinned =
      Registered().Find(address, &range) && bytes <= range.bytes - (address - range.base);
  return pinned ? PointerKind::kPinned : PointerKind::kPageable;
}

bool WaitsFor(uint64_t address) {
  const AllocationRef allocation = TheDevice().arena.Find(address);
  return allocation != nullptr && allocation->sync_memops.load(std::memory_order_relaxed);
}

CUresult MoveBytes(const CopyPlan& plan) {
  Fault fault;
  CopyPlan copy = plan;
  if (RunGuarded(&MoveRows, &copy, &fault)) return CUDA_SUCCESS;
  return TheDevice().arena.Contains(fault.address) ? CUDA_ERROR_ILLEGAL_ADDRESS
                                                   : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckPlan(CopyPlan* plan, PointerKind required_dst, PointerKind required_src) {
  struct {
    bool array;
    uint64_t address, pitch, slice;
    PointerKind required;
    PointerKind* kind;
  } const sides[] = {
      {plan->dst_array, plan->dst, plan->dst_pitch, plan->dst_slice, required_dst, &plan->dst_kind},
      {plan->src_array, plan->src, plan->src_pitch, plan->src_slice, required_src, &plan->src_kind},
  };
  for (const auto& side : sides) {
    if (side.array) continue;
    uint64_t slice_bytes = 0;
    uint64_t bytes = 0;
    if (plan->height > 1 && side.pitch < plan->width) return CUDA_ERROR_INVALID_VALUE;
    if (!SpanOf(side.pitch, plan->width, plan->height, &slice_bytes) ||
        (plan->depth > 1 && side.slice < slice_bytes) ||
        !SpanOf(side.slice, slice_bytes, plan->depth, &bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0) continue;
    *side.kind = KindOf(side.address, bytes);
    if (!Satisfies(*side.kind, side.required)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

namespace {

// A copy within the device returns before it is done; any other copy is complete when the call
// returns.
CUresult CopyAndWait(const CopyPlan& plan, const std::shared_ptr<Stream>& stream) {
  if (plan.empty()) return CUDA_SUCCESS;
  const bool on_device =
      plan.dst_kind == PointerKind::kDevice && plan.src_kind == PointerKind::kDevice;
  if (on_device && !WaitsFor(plan.dst) && !WaitsFor(plan.src)) {
    Command command;
    command.run = [plan] { return MoveLater(plan); };
    return stream->Push(std::move(command));
  }
  const CUresult moved = stream->PushAndWait([&plan] { return MoveBytes(plan); });
  if (moved == CUDA_ERROR_ILLEGAL_ADDRESS) stream->context()->Fail(moved);
  return moved;
}

}  // namespace

CUresult SynchronousCopy(const CopyPlan& plan, const std::shared_ptr<Stream>& stream) {
  const CUresult bad = CheckSynchronousWork(*stream);
  return bad == CUDA_SUCCESS ? CopyAndWait(plan, stream) : bad;
}

bool CaptureCopy(const CopyPlan& plan, const Stream& stream, CUresult* result) {
  return Capture(stream, result, [&](auto* params) { return MakeNode(plan, stream, params); });
}

CUresult AsynchronousCopy(const CopyPlan& plan, const std::shared_ptr<Stream>& stream) {
  if (plan.empty()) return CUDA_SUCCESS;
  CUresult captured = CUDA_SUCCESS;
  if (CaptureCopy(plan, *stream, &captured)) return captured;
  // Copies into pageable memory are complete when the call returns; copies from host to host are
  // synchronous.
  const bool waits = plan.dst_kind == PointerKind::kPageable ||
                     (IsHost(plan.dst_kind) && IsHost(plan.src_kind)) || WaitsFor(plan.dst) ||
                     WaitsFor(plan.src);
  if (waits) return CopyAndWait(plan, stream);
  if (plan.src_kind == PointerKind::kPageable) {
    uint64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow(plan.width, plan.height, &bytes) &&
                      !__builtin_mul_overflow(bytes, plan.depth, &bytes) && bytes <= kStageBytes;
    // CUDA allows both: to stage the bytes and return, or to wait until the stream reaches the
    // copy.
    return fits && !HostileChance(3) ? Captured(plan, stream) : CopyAndWait(plan, stream);
  }
  // A short copy costs less than waking the stream's thread, and its bytes are still in the cache.
  const bool host_side = IsHost(plan.dst_kind) || IsHost(plan.src_kind);
  if (host_side && plan.height == 1 && plan.depth == 1 && plan.width <= kAtOnceBytes &&
      stream->NothingBefore()) {
    return stream->RunNow([&] {
      const CUresult moved = MoveLater(plan);
      if (moved != CUDA_SUCCESS) stream->context()->Fail(moved);
      return CUDA_SUCCESS;
    });
  }
  Command command;
  command.run = [plan] { return MoveLater(plan); };
  return stream->Push(std::move(command));
}

CUresult CopyOfBatch(CopyPlan plan, CUmemcpySrcAccessOrder order,
                     const std::shared_ptr<Stream>& stream) {
  CUresult captured = CUDA_SUCCESS;
  if (plan.empty()) return CUDA_SUCCESS;
  if (CaptureCopy(plan, *stream, &captured)) return captured;
  const bool upload = IsHost(plan.src_kind) && plan.dst_kind == PointerKind::kDevice;
  if (upload && order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
    Command command;
    command.run = [plan] { return MoveLater(plan); };
    return stream->Push(std::move(command));
  }
  // As from pageable memory, whose bytes are taken before the call returns.
  if (upload) plan.src_kind = PointerKind::kPageable;
  return AsynchronousCopy(plan, stream);
}

}  // namespace rgpu::emu
