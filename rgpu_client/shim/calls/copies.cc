#include "rgpu_client/shim/calls/copies.h"

#include <string.h>

#include <algorithm>
#include <vector>

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/direct_copy.h"
#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/pump.h"
#include "rgpu_client/shim/region_sink.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

HostRegion Region(const Side& side, const Copy& copy) {
  return {reinterpret_cast<uint8_t*>(side.address), copy.width, copy.height,
          copy.height > 1 ? side.pitch : copy.width};
}

// Sets `*bytes` to the distance from the first byte to the end of the last row. False: it
// overflows, or the rows overlap.
bool Span(uint64_t pitch, uint64_t width, uint64_t height, uint64_t* bytes) {
  if (height <= 1) {
    *bytes = width;
    return true;
  }
  return pitch >= width && !__builtin_mul_overflow(pitch, height - 1, bytes) &&
         !__builtin_add_overflow(*bytes, width, bytes);
}

// A part of a copy that fits one frame: rows [row, row + rows) of columns [column, column + width).
struct Part {
  uint64_t row = 0;
  uint64_t rows = 1;
  uint64_t column = 0;
  uint64_t width = 0;
  bool last = false;
};

// Calls visit for each part, in order, until it returns an error.
template <typename Visit>
CUresult ForEachPart(uint64_t width, uint64_t height, Visit visit) {
  const uint64_t limit = wire::kPieceBytes;
  const uint64_t rows_at_once = std::max<uint64_t>(1, limit / width);
  for (uint64_t row = 0; row < height; row += rows_at_once) {
    const uint64_t rows = std::min(rows_at_once, height - row);
    for (uint64_t column = 0; column < width; column += limit) {
      const uint64_t count = std::min(limit, width - column);
      const bool last = row + rows == height && column + count == width;
      const CUresult status = visit(Part{row, rows, column, count, last});
      if (status != CUDA_SUCCESS) return status;
    }
  }
  return CUDA_SUCCESS;
}

// Turns a copy whose rows have no gaps on both sides into a copy of one long row.
Copy Flattened(const Copy& copy) {
  Copy flat = copy;
  if (copy.height > 1 && copy.to.pitch == copy.width && copy.from.pitch == copy.width) {
    flat.width = copy.width * copy.height;
    flat.height = 1;
  }
  if (flat.height == 1) flat.to.pitch = flat.from.pitch = flat.width;
  return flat;
}

// The smallest copy whose memory is lent. Copying fewer bytes takes less time than a TakeBack.
constexpr uint64_t kLeastLentBytes = 1U << 20;

// While a Lent exists, the connection may send, and resend, bytes straight from this host memory.
class Lent {
 public:
  Lent(Channel& channel, const HostRegion& region) : channel_(channel), region_(region) {}
  ~Lent() {
    if (holds()) channel_.TakeBack(region_.base, region_.span());
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  bool holds() const { return region_.bytes() >= kLeastLentBytes; }

 private:
  Channel& channel_;
  const HostRegion region_;
};

// True if bytes of an asynchronous copy have still to land in the region, or to be read from it.
bool ExpectsIn(const Here& here, const HostRegion& region) {
  return here.channel().ExpectsIn(reinterpret_cast<uint64_t>(region.base), region.span());
}

CUresult HostToDevice(const Here& here, const Copy& copy) {
  if (copy.synchronous) {
    if (const auto done = CopyDirectly(here, copy)) return *done;
  }
  const HostRegion source = Region(copy.from, copy);
  const Lent lent(here.channel(), source);
  std::vector<uint8_t> packed;
  CUresult worst = CUDA_SUCCESS;
  const CUresult status = ForEachPart(copy.width, copy.height, [&](const Part& part) {
    const uint64_t bytes = part.rows * part.width;
    const uint8_t* bulk = source.base + part.row * source.pitch + part.column;
    bool in_place = true;
    if (part.rows > 1 && source.pitch != part.width) {
      packed.resize(bytes);
      Pack(source, part.row * source.width, bytes, packed.data());
      bulk = packed.data();
      in_place = false;
    }
    PostOptions options = CountedWork(here, bytes, Reach::kNamed);
    options.lent = in_place && lent.holds();
    options.bulk = bulk;
    options.bulk_bytes = bytes;
    options.more = !part.last;
    const uint64_t to = copy.to.address + part.row * copy.to.pitch + part.column;
    const CUresult sent = here.channel().Post<op_rgpuCopyHtoD>(
        here.issuer(),
        {to, copy.to.pitch, part.width, part.rows, here.stream->wire, copy.synchronous}, options);
    // Post has sent zeros for memory that cannot be read. The other parts are still sent, so that
    // the worker gets a complete copy.
    if (sent == CUDA_ERROR_INVALID_VALUE) worst = sent;
    return sent == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : sent;
  });
  return status == CUDA_SUCCESS ? worst : status;
}

// Posts a copy whose bytes the worker asks for when the stream reaches it.
CUresult HostToDevicePulled(const Here& here, const Copy& copy) {
  const uint64_t bytes = copy.width * copy.height;
  const CUresult status = here.channel().PostDelivered<op_rgpuCopyHtoDPull>(
      here.issuer(), {copy.to.address, copy.to.pitch, copy.width, copy.height, here.stream->wire},
      CountedWork(here, bytes, Reach::kNamed), Region(copy.from, copy), true);
  if (status == CUDA_SUCCESS) Pump::Need(&here.channel());
  return status;
}

// HostToDevicePulled, and then a wait until the copy is complete.
CUresult HostToDevicePulledNow(const Here& here, const Copy& copy) {
  const CUresult status = HostToDevicePulled(here, copy);
  if (status != CUDA_SUCCESS) return status;
  rgpuStreamSynchronize_Reply reply;
  return here.channel().Call<op_rgpuStreamSynchronize>(here.issuer(), {here.stream->wire}, &reply);
}

CUresult DeviceToHostLater(const Here& here, const Copy& copy) {
  const uint64_t bytes = copy.width * copy.height;
  const CUresult status = here.channel().PostDelivered<op_rgpuCopyDtoHLater>(
      here.issuer(),
      {copy.from.address, copy.from.pitch, copy.width, copy.height, here.stream->wire},
      CountedWork(here, bytes, Reach::kNamed), Region(copy.to, copy), false);
  if (status == CUDA_SUCCESS) Pump::Need(&here.channel());
  return status;
}

CUresult DeviceToHost(const Here& here, const Copy& copy) {
  const HostRegion to = Region(copy.to, copy);
  // Earlier deliveries into this region land before the worker's answer, but could land after a
  // direct copy and overwrite it.
  if (!ExpectsIn(here, to)) {
    if (const auto done = CopyDirectly(here, copy)) return *done;
  }
  RegionSink sink(to);
  rgpuCopyDtoH_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuCopyDtoH>(
      here.issuer(),
      {copy.from.address, copy.from.pitch, copy.width, copy.height, here.stream->wire}, &reply,
      &sink);
  if (status != CUDA_SUCCESS) return status;
  if (sink.fault()) return CUDA_ERROR_INVALID_VALUE;
  if (sink.complete()) return CUDA_SUCCESS;
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, "the server sent too few bytes of a copy");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

CUresult DeviceToDevice(const Here& here, const Copy& copy) {
  return here.channel().Post<op_rgpuCopyDtoD>(
      here.issuer(),
      {copy.to.address, copy.to.pitch, copy.from.address, copy.from.pitch, copy.width, copy.height,
       here.stream->wire, copy.synchronous},
      CountedWork(here, copy.width * copy.height, Reach::kNamed));
}

CUresult HostToHost(const Here& here, const Copy& copy) {
  const HostRegion from = Region(copy.from, copy);
  const HostRegion to = Region(copy.to, copy);
  // The copy is synchronous, so wait first for all deliveries that touch either side.
  for (const HostRegion& region : {from, to}) {
    const CUresult status =
        here.channel().WaitForDeliveries(reinterpret_cast<uint64_t>(region.base), region.span());
    if (status != CUDA_SUCCESS) return status;
  }
  for (uint64_t row = 0; row < copy.height; ++row) {
    memmove(to.base + row * to.pitch, from.base + row * from.pitch, copy.width);
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

// Memory that the program also uses in place is device memory for the wire, by whatever function
// the program names it.
void NameVisibleSides(const Here& here, Copy* copy) {
  for (Side* side : {&copy->to, &copy->from}) {
    if (side->device) continue;
    const auto range = here.session->addresses().Find(side->address);
    side->device = range && range->is_visible();
  }
}

CUresult Dispatch(const Here& here, const Copy& copy) {
  if (copy.to.device) {
    return copy.from.device ? DeviceToDevice(here, copy) : CopyToDevice(here, copy);
  }
  return copy.from.device ? CopyToHost(here, copy) : HostToHost(here, copy);
}

}  // namespace

bool WaitsForMemops(const Here& here, const Side& side) {
  if (!side.device) return false;
  const auto range = here.session->addresses().Find(side.address);
  return range && (range->sync_memops || range->is_visible());
}

void UseDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height,
                     bool written) {
  uint64_t span = 0;
  if (!side.device || !Span(side.pitch, width, height, &span)) return;
  if (PagedHas(kTrackedRanges | kMirrors)) {
    here.session->paged().BeforeUse(here, side.address, span, written);
  }
}

bool IsKnownDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height) {
  uint64_t span = 0;
  if (!Span(side.pitch, width, height, &span)) return false;
  return here.session->addresses().MayAccess(side.address, span);
}

CUresult RunCopy(const Here& here, const Copy& asked) {
  if (const CUresult status = here.channel().sticky(); status != CUDA_SUCCESS) return status;
  const bool visible = PagedHas(kVisibleRanges | kMirrors);
  Copy copy = asked;
  if (visible) [[unlikely]]
    NameVisibleSides(here, &copy);
  if (copy.width == 0 || copy.height == 0) return CUDA_SUCCESS;
  for (const Side* side : {&copy.to, &copy.from}) {
    uint64_t span = 0;
    if (side->address == 0 || !Span(side->pitch, copy.width, copy.height, &span)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (side->device && !IsKnownDeviceMemory(here, *side, copy.width, copy.height)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  TraceBytes(copy.width * copy.height);
  if (visible) [[unlikely]] {
    UseDeviceMemory(here, copy.from, copy.width, copy.height, false);
    UseDeviceMemory(here, copy.to, copy.width, copy.height, true);
  }
  const CUresult status = Dispatch(here, Flattened(copy));
  const bool both = copy.to.device || copy.from.device;
  if (status != CUDA_SUCCESS || !both || !copy.synchronous) return status;
  if (WaitsForMemops(here, copy.to) || WaitsForMemops(here, copy.from)) {
    return SynchronizeContext(here);
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
