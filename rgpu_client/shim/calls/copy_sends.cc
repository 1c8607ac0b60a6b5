#include "rgpu_client/shim/calls/copy_sends.h"

#include <algorithm>
#include <vector>

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/copy_parts.h"
#include "rgpu_client/shim/calls/direct_copy.h"
#include "rgpu_client/shim/calls/host_bytes.h"
#include "rgpu_client/shim/pump.h"
#include "rgpu_client/shim/region_sink.h"

namespace rgpu::shim {
namespace {

// Sets the fields that the commands of boxes have in common.
template <typename Request>
Request Box(const Here& here, const Side& side, const Part& size) {
  Request request;
  request.array = side.array;
  if (side.array == 0) {
    request.at = side.address;
    request.pitch = side.pitch;
    request.rows = side.rows;
  }
  request.x = side.x;
  request.y = side.y;
  request.z = side.z;
  request.width = size.width;
  request.height = size.rows;
  request.depth = size.slices;
  request.stream = here.stream->wire;
  return request;
}

template <typename Request>
Request Box(const Here& here, const Side& side, const Copy& copy) {
  return Box<Request>(here, side, Part{0, copy.depth, 0, copy.height, 0, copy.width, true});
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

CUresult PostPart(const Here& here, const Copy& copy, const Part& part,
                  const PostOptions& options) {
  const Side to = copy.to.At(part.slice, part.row, part.column);
  if (copy.is_box()) {
    auto request = Box<rgpuCopyBoxIn_Request>(here, to, part);
    request.synchronous = copy.synchronous;
    return here.channel().Post<op_rgpuCopyBoxIn>(here.issuer(), request, options);
  }
  return here.channel().Post<op_rgpuCopyHtoD>(
      here.issuer(),
      {to.address, to.pitch, part.width, part.rows, here.stream->wire, copy.synchronous}, options);
}

// The bytes that a copy takes from the credit of its stream. Memory of ours is bounded by itself,
// and the caller must not wait for the stream on its account.
uint64_t CreditBytes(const Copy& copy, const std::shared_ptr<const void>& keep) {
  return keep == nullptr ? copy.bytes() : 0;
}

CUresult AskForBytes(const Here& here, const Copy& copy, RegionSink* sink) {
  if (copy.is_box()) {
    rgpuCopyBoxOut_Reply reply;
    return here.channel().Call<op_rgpuCopyBoxOut>(
        here.issuer(), Box<rgpuCopyBoxOut_Request>(here, copy.from, copy), &reply, sink);
  }
  rgpuCopyDtoH_Reply reply;
  return here.channel().Call<op_rgpuCopyDtoH>(
      here.issuer(),
      {copy.from.address, copy.from.pitch, copy.width, copy.height, here.stream->wire}, &reply,
      sink);
}

}  // namespace

CUresult HostToDevice(const Here& here, const Copy& copy) {
  if (copy.synchronous) {
    if (const auto done = CopyDirectly(here, copy)) return *done;
  }
  const HostRegion source = Region(copy.from, copy);
  const Lent lent(here.channel(), source);
  std::vector<uint8_t> packed;
  CUresult worst = CUDA_SUCCESS;
  const CUresult status = ForEachPart(copy, wire::kPieceBytes, [&](const Part& part) {
    const uint64_t bytes = part.bytes();
    const uint64_t row = part.slice * copy.height + part.row;
    const bool in_place = source.contiguous(row, part.rows * part.slices);
    const uint8_t* bulk = source.base + source.RowAt(row) + part.column;
    if (!in_place) {
      packed.resize(bytes);
      Pack(source, row * source.width, bytes, packed.data());
      bulk = packed.data();
    }
    PostOptions options = CountedWork(here, bytes, Reach::kNamed);
    options.lent = in_place && lent.holds();
    options.bulk = bulk;
    options.bulk_bytes = bytes;
    options.more = !part.last;
    const CUresult sent = PostPart(here, copy, part, options);
    // Post has sent zeros for memory that cannot be read. The other parts are still sent, so that
    // the worker gets a complete copy.
    if (sent == CUDA_ERROR_INVALID_VALUE) worst = sent;
    return sent == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : sent;
  });
  return status == CUDA_SUCCESS ? worst : status;
}

CUresult HostToDevicePulled(const Here& here, const Copy& copy, std::shared_ptr<const void> keep) {
  const PostOptions options = CountedWork(here, CreditBytes(copy, keep), Reach::kNamed);
  const HostRegion source = Region(copy.from, copy);
  const CUresult status =
      copy.is_box()
          ? here.channel().PostDelivered<op_rgpuCopyBoxInPull>(
                here.issuer(), Box<rgpuCopyBoxInPull_Request>(here, copy.to, copy), options, source,
                true, std::move(keep))
          : here.channel().PostDelivered<op_rgpuCopyHtoDPull>(
                here.issuer(),
                {copy.to.address, copy.to.pitch, copy.width, copy.height, here.stream->wire},
                options, source, true, std::move(keep));
  if (status == CUDA_SUCCESS) Pump::Need(&here.channel());
  return status;
}

CUresult HostToDevicePulledNow(const Here& here, const Copy& copy) {
  const CUresult status = HostToDevicePulled(here, copy);
  return status == CUDA_SUCCESS ? SynchronizeStream(here) : status;
}

CUresult DeviceToHostLater(const Here& here, const Copy& copy, std::shared_ptr<const void> keep) {
  const PostOptions options = CountedWork(here, CreditBytes(copy, keep), Reach::kNamed);
  const HostRegion to = Region(copy.to, copy);
  const CUresult status =
      copy.is_box()
          ? here.channel().PostDelivered<op_rgpuCopyBoxOutLater>(
                here.issuer(), Box<rgpuCopyBoxOutLater_Request>(here, copy.from, copy), options, to,
                false, std::move(keep))
          : here.channel().PostDelivered<op_rgpuCopyDtoHLater>(
                here.issuer(),
                {copy.from.address, copy.from.pitch, copy.width, copy.height, here.stream->wire},
                options, to, false, std::move(keep));
  if (status == CUDA_SUCCESS) Pump::Need(&here.channel());
  return status;
}

CUresult DeviceToHost(const Here& here, const Copy& copy) {
  const HostRegion to = Region(copy.to, copy);
  // Earlier deliveries into this region land before the worker's answer, but could land after a
  // direct copy and overwrite it.
  if (!ExpectsIn(to)) {
    if (const auto done = CopyDirectly(here, copy)) return *done;
  }
  RegionSink sink(to);
  const CUresult status = AskForBytes(here, copy, &sink);
  if (status != CUDA_SUCCESS) return status;
  if (sink.fault()) return CUDA_ERROR_INVALID_VALUE;
  if (sink.complete()) return CUDA_SUCCESS;
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, "the server sent too few bytes of a copy");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

CUresult DeviceToDevice(const Here& here, const Copy& copy) {
  const PostOptions options = CountedWork(here, copy.bytes(), Reach::kNamed);
  if (copy.is_box()) {
    rgpuCopyBoxWithin_Request request = BoxWithin<rgpuCopyBoxWithin_Request>(here, copy);
    request.synchronous = copy.synchronous;
    return here.channel().Post<op_rgpuCopyBoxWithin>(here.issuer(), request, options);
  }
  return here.channel().Post<op_rgpuCopyDtoD>(
      here.issuer(),
      {copy.to.address, copy.to.pitch, copy.from.address, copy.from.pitch, copy.width, copy.height,
       here.stream->wire, copy.synchronous},
      options);
}

}  // namespace rgpu::shim
