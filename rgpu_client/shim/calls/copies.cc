#include "rgpu_client/shim/calls/copies.h"

#include <string.h>

#include <algorithm>

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/copy_sends.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

CUresult HostToHost(const Here& here, const Copy& copy) {
  const HostRegion from = Region(copy.from, copy);
  const HostRegion to = Region(copy.to, copy);
  // The copy is synchronous, so wait first for all deliveries that touch either side.
  for (const HostRegion& region : {from, to}) {
    const CUresult status =
        here.channel().WaitForDeliveries(reinterpret_cast<uint64_t>(region.base), region.span());
    if (status != CUDA_SUCCESS) return status;
  }
  for (uint64_t row = 0; row < to.height; ++row) {
    memmove(to.base + to.RowAt(row), from.base + from.RowAt(row), copy.width);
  }
  return CUDA_SUCCESS;
}

// True if the region is pinned or registered memory. Only then may a copy continue after the call.
bool IsPinned(const Here& here, const HostRegion& region) {
  const auto range = here.session->addresses().Find(reinterpret_cast<uint64_t>(region.base),
                                                    std::max<uint64_t>(1, region.span()));
  return range && range->is_host();
}

CUresult CopyToDevice(const Here& here, const Copy& copy) {
  const HostRegion source = Region(copy.from, copy);
  bool later = !copy.synchronous && IsPinned(here, source);
  if (copy.source_order == SourceOrder::kStream) later = true;
  // A delivery that is under way may land before or after a read at the call, as the program likes.
  if (copy.source_order == SourceOrder::kAtCall) return HostToDevice(here, copy);
  // A delivery into the source is outstanding, and the streams may order it before this copy. The
  // worker therefore decides when the bytes are read.
  if (ExpectsIn(here, source)) {
    return later ? HostToDevicePulled(here, copy) : HostToDevicePulledNow(here, copy);
  }
  // A stream waits for a value, so the program may still fill the buffer before this stream reaches
  // the copy.
  const bool ordered = here.session->host_ordered_contexts.load() != 0;
  return later && ordered ? HostToDevicePulled(here, copy) : HostToDevice(here, copy);
}

CUresult CopyToHost(const Here& here, const Copy& copy) {
  if (!copy.synchronous && IsPinned(here, Region(copy.to, copy))) {
    return DeviceToHostLater(here, copy);
  }
  return DeviceToHost(here, copy);
}

bool HasSyncMemops(const Here& here, const Side& side) {
  if (!side.device || side.array != 0) return false;
  const auto range = here.session->addresses().Find(side.address);
  return range && range->sync_memops;
}

CUresult Dispatch(const Here& here, const Copy& copy) {
  if (copy.to.device) {
    return copy.from.device ? DeviceToDevice(here, copy) : CopyToDevice(here, copy);
  }
  return copy.from.device ? CopyToHost(here, copy) : HostToHost(here, copy);
}

}  // namespace

HostRegion Region(const Side& side, const Copy& copy) {
  HostRegion region;
  region.base = reinterpret_cast<uint8_t*>(side.address);
  region.width = copy.width;
  region.height = copy.height * copy.depth;
  region.pitch = copy.height > 1 ? side.pitch : copy.width;
  if (copy.depth > 1) region.slice_rows = copy.height;
  region.slice_pitch = side.rows * side.pitch;
  return region;
}

bool SpanOf(const Side& side, const Copy& copy, uint64_t* bytes) {
  *bytes = copy.width;
  if (copy.height <= 1 && copy.depth <= 1) return true;
  if (side.pitch < copy.width || (copy.depth > 1 && side.rows < copy.height)) return false;
  uint64_t rows = 0;
  return !__builtin_mul_overflow(copy.depth - 1, side.rows, &rows) &&
         !__builtin_add_overflow(rows, copy.height - 1, &rows) &&
         !__builtin_mul_overflow(rows, side.pitch, bytes) &&
         !__builtin_add_overflow(*bytes, copy.width, bytes);
}

Copy Flattened(const Copy& copy) {
  Copy flat = copy;
  if (copy.to.array != 0 || copy.from.array != 0) return flat;
  if (copy.depth > 1 && copy.to.rows == copy.height && copy.from.rows == copy.height) {
    flat.height = copy.height * copy.depth;
    flat.depth = 1;
  }
  if (flat.depth > 1) return flat;
  if (flat.height > 1 && flat.to.pitch == flat.width && flat.from.pitch == flat.width) {
    flat.width = flat.width * flat.height;
    flat.height = 1;
  }
  if (flat.height == 1) flat.to.pitch = flat.from.pitch = flat.width;
  return flat;
}

CUresult CheckSides(const Here& here, const Copy& copy) {
  for (const Side* side : {&copy.to, &copy.from}) {
    if (side->array != 0) continue;
    uint64_t span = 0;
    if (side->address == 0 || !SpanOf(*side, copy, &span)) return CUDA_ERROR_INVALID_VALUE;
    if (side->device && !here.session->addresses().MayAccess(side->address, span)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

bool IsKnownDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height) {
  Copy copy;
  copy.width = width;
  copy.height = height;
  uint64_t span = 0;
  return SpanOf(side, copy, &span) && here.session->addresses().MayAccess(side.address, span);
}

CUresult RunCopy(const Here& here, const Copy& copy) {
  if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
  if (copy.empty()) return CUDA_SUCCESS;
  if (const CUresult status = CheckSides(here, copy); status != CUDA_SUCCESS) return status;
  TraceBytes(copy.bytes());
  const CUresult status = Dispatch(here, Flattened(copy));
  const bool both = copy.to.device || copy.from.device;
  if (status != CUDA_SUCCESS || !both || !copy.synchronous) return status;
  if (HasSyncMemops(here, copy.to) || HasSyncMemops(here, copy.from)) {
    return SynchronizeContext(here);
  }
  return CUDA_SUCCESS;
}

CUresult RunCopyOfBatch(const Here& here, const Copy& copy) {
  if (!copy.to.device && !copy.from.device) {
    rgpuStreamSynchronize_Reply reply;
    const CUresult status =
        here.channel().Call<op_rgpuStreamSynchronize>(here.issuer(), {here.stream->wire}, &reply);
    if (status != CUDA_SUCCESS) return status;
  }
  return RunCopy(here, copy);
}

}  // namespace rgpu::shim
