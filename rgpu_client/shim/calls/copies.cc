#include "rgpu_client/shim/calls/copies.h"

#include <algorithm>

#include "rgpu_client/shim/calls/across.h"
#include "rgpu_client/shim/calls/box_sides.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/copy_sends.h"
#include "rgpu_client/shim/calls/host_bytes.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

CUresult HostToHost(const Here& here, const Copy& copy) {
  const HostRegion from = Region(copy.from, copy);
  const HostRegion to = Region(copy.to, copy);
  // The copy is synchronous, so wait first for all deliveries that touch either side.
  for (const HostRegion& region : {from, to}) {
    const CUresult status =
        WaitForHostBytes(here, reinterpret_cast<uint64_t>(region.base), region.span());
    if (status != CUDA_SUCCESS) return status;
  }
  MoveRows(to, from);
  return CUDA_SUCCESS;
}

// True if the region is pinned or registered memory. Only then may a copy continue after the call.
bool IsPinned(const HostRegion& region) {
  const auto address = reinterpret_cast<uint64_t>(region.base);
  const auto range =
      SessionOfAddress(address)->addresses().Find(address, std::max<uint64_t>(1, region.span()));
  return range && range->is_host();
}

CUresult CopyToDevice(const Here& here, const Copy& copy) {
  const HostRegion source = Region(copy.from, copy);
  bool later = !copy.synchronous && IsPinned(source);
  if (copy.source_order == SourceOrder::kStream) later = true;
  // A delivery that is under way may land before or after a read at the call, as the program likes.
  if (copy.source_order == SourceOrder::kAtCall) return HostToDevice(here, copy);
  // A delivery into the source is outstanding, and the streams may order it before this copy. The
  // worker therefore decides when the bytes are read.
  if (ExpectsIn(source)) {
    return later ? HostToDevicePulled(here, copy) : HostToDevicePulledNow(here, copy);
  }
  // A stream waits for a value, so the program may still fill the buffer before this stream reaches
  // the copy.
  return later && HostBytesAreOrdered() ? HostToDevicePulled(here, copy) : HostToDevice(here, copy);
}

CUresult CopyToHost(const Here& here, const Copy& copy) {
  if (!copy.synchronous && IsPinned(Region(copy.to, copy))) {
    return DeviceToHostLater(here, copy);
  }
  return DeviceToHost(here, copy);
}

// Memory that the program also uses in place is device memory for the wire, by whatever function
// the program names it.
void NameVisibleSides(Copy* copy) {
  for (Side* side : {&copy->to, &copy->from}) {
    if (side->device) continue;
    const auto range = SessionOfAddress(side->address)->addresses().Find(side->address);
    side->device = range && range->is_visible();
  }
}

// With unified addressing, a function for device memory may name page-locked memory. That is host
// memory for the wire.
void NamePinnedSide(Side* side) {
  if (!side->device || side->array != 0) return;
  for (Session* const owner : LiveSessions()) {
    if (!owner->addresses().MayBePinned(side->address)) continue;
    const auto range = owner->addresses().Find(side->address);
    if (range && range->kind == RangeKind::kPinned) side->device = false;
  }
}

// One side of a set, or a row: the copy of which it would be a side.
Copy Plane(uint64_t width, uint64_t height) {
  Copy copy;
  copy.width = width;
  copy.height = height;
  return copy;
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

CUresult CheckSide(const Here& here, const Side& side, const Copy& copy) {
  if (side.array != 0) {
    return SessionOf(side.array) == here.session ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t span = 0;
  if (side.address == 0 || !SpanOf(side, copy, &span)) return CUDA_ERROR_INVALID_VALUE;
  const bool known = !side.device || here.session->addresses().MayAccess(side.address, span);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckSides(const Here& here, const Copy& copy) {
  const CUresult status = CheckSide(here, copy.to, copy);
  return status == CUDA_SUCCESS ? CheckSide(here, copy.from, copy) : status;
}

CUresult FinishSynchronous(const Here& here, const Side& side, bool read_elsewhere) {
  if (!side.device || side.array != 0) return CUDA_SUCCESS;
  const auto range = here.session->addresses().Find(side.address);
  if (!range) return CUDA_SUCCESS;
  if (range->sync_memops) return SynchronizeContext(here);
  const bool image = range->kind == RangeKind::kHostImage;
  const bool in_place = range->is_visible() || image;
  if (!in_place && !(read_elsewhere && range->is_shared())) return CUDA_SUCCESS;
  const CUresult status = SynchronizeStream(here);
  // The program reads the memory of which this is the image.
  if (image && status == CUDA_SUCCESS) here.session->paged().AfterCall(true);
  return status;
}

void NamePinnedSides(Copy* copy) {
  NamePinnedSide(&copy->to);
  NamePinnedSide(&copy->from);
}

void UseDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height,
                     bool written) {
  UseDeviceMemory(here, side, Plane(width, height), written);
}

void UseDeviceMemory(const Here& here, const Side& side, const Copy& copy, bool written) {
  uint64_t span = 0;
  if (!side.device || side.array != 0 || !SpanOf(side, copy, &span)) return;
  if (PagedHas(kTrackedRanges | kMirrors)) {
    here.session->paged().BeforeUse(here, side.address, span, written);
  }
}

bool IsKnownDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height) {
  uint64_t span = 0;
  return SpanOf(side, Plane(width, height), &span) &&
         here.session->addresses().MayAccess(side.address, span);
}

bool CapturedCopy(const Here& here, const Copy& copy, CUresult* status) {
  if (!Graphs().captures.active()) return false;
  if (copy.synchronous) {
    *status = CheckSynchronousWork(here);
    return *status != CUDA_SUCCESS;
  }
  return Captured(here, status, [&](graph::Params* params) {
    *params = graph::CopyParams{NodeOf(copy), MakeHandle<CUcontext>(here.context->id)};
    return CUDA_SUCCESS;
  });
}

CUresult RunCopy(const Here& here, const Copy& asked) {
  if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
  const bool visible = PagedHas(kVisibleRanges | kMirrors);
  Copy copy = asked;
  if (visible) [[unlikely]]
    NameVisibleSides(&copy);
  NamePinnedSides(&copy);
  if (IsAcross(here, copy)) [[unlikely]]
    return RunAcross(here, copy);
  if (copy.empty()) return CUDA_SUCCESS;
  if (const CUresult status = CheckSides(here, copy); status != CUDA_SUCCESS) return status;
  CUresult status = CUDA_SUCCESS;
  if (CapturedCopy(here, copy, &status)) return status;
  TraceBytes(copy.bytes());
  if (visible) [[unlikely]] {
    UseDeviceMemory(here, copy.from, copy, false);
    UseDeviceMemory(here, copy.to, copy, true);
  }
  status = Dispatch(here, Flattened(copy));
  // A source that is read at the call must be read before the return.
  const bool at_call = visible && copy.source_order == SourceOrder::kAtCall;
  if (status != CUDA_SUCCESS || !(copy.synchronous || at_call)) return status;
  const CUresult waited = FinishSynchronous(here, copy.from, false);
  return waited == CUDA_SUCCESS ? FinishSynchronous(here, copy.to, true) : waited;
}

CUresult RunCopyOfBatch(const Here& here, const Copy& copy) {
  if (!copy.to.device && !copy.from.device && !Graphs().captures.active()) {
    if (const CUresult status = SynchronizeStream(here); status != CUDA_SUCCESS) return status;
  }
  return RunCopy(here, copy);
}

}  // namespace rgpu::shim
