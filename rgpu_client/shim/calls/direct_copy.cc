#include "rgpu_client/shim/calls/direct_copy.h"

#include <algorithm>

#include "rgpu_common/native/base/large_copy.h"
#include "rgpu_common/native/base/probe.h"

namespace rgpu::shim {
namespace {

// The smallest direct copy. Its fixed cost is a call and waking the stream. Measured: 64 KiB take
// 14 us through the ring and 27 us as a direct copy; 256 KiB take 53 us and 34 us.
constexpr uint64_t kDirectBytes = 256U << 10;
// The bytes copied under one ticket. The stream stands still for so long, and other tenants may
// wait.
constexpr uint64_t kPieceBytes = 64U << 20;

// Calls the worker, which answers when the stream has reached the copy. `*ticket` then names it.
CUresult Begin(const Here& here, bool to_device, uint64_t address, uint64_t bytes,
               uint64_t* ticket) {
  if (to_device) {
    rgpuCopyInDirect_Reply reply;
    const CUresult status = here.channel().Call<op_rgpuCopyInDirect>(
        here.issuer(), {address, bytes, here.stream->wire}, &reply);
    *ticket = reply.ticket;
    return status;
  }
  rgpuCopyOutDirect_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuCopyOutDirect>(
      here.issuer(), {address, bytes, here.stream->wire}, &reply);
  *ticket = reply.ticket;
  return status;
}

// Everything issued to the stream up to `version` is complete, because the stream has reached the
// copy.
void Note(const Here& here, uint64_t version) {
  MarkSynced(here.stream->progress.completed, version);
}

CUresult CopyPiece(const Here& here, bool to_device, uint64_t address, uint8_t* host,
                   uint64_t bytes) {
  const bool legacy = here.stream->wire == kWireLegacyStream;
  const uint64_t version =
      legacy ? here.context->work_seq.load() : here.stream->progress.version.load();
  uint64_t ticket = 0;
  const CUresult status = Begin(here, to_device, address, bytes, &ticket);
  if (status != CUDA_SUCCESS) return status;
  uint8_t* const device = here.session->direct().At(address, bytes);
  if (to_device) {
    base::LargeCopy(device, host, bytes);
  } else {
    base::LargeCopy(host, device, bytes);
  }
  Note(here, version);
  if (!here.session->CopyDone(ticket)) {
    here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                             "the connection to the server was lost during a copy");
  }
  return here.channel().sticky();
}

}  // namespace

std::optional<CUresult> CopyDirectly(const Here& here, const Copy& copy) {
  const DirectMemory& direct = here.session->direct();
  if (!direct.mapped() || copy.is_box() || copy.height != 1 || copy.width < kDirectBytes)
    return std::nullopt;
  const bool to_device = copy.to.device;
  const uint64_t address = to_device ? copy.to.address : copy.from.address;
  auto* host = reinterpret_cast<uint8_t*>(to_device ? copy.from.address : copy.to.address);
  if (direct.At(address, copy.width) == nullptr || here.channel().Lacks(Opcode::rgpuCopyInDirect) ||
      here.channel().Lacks(Opcode::rgpuCopyOutDirect)) {
    return std::nullopt;
  }
  // The bytes of a mapping have another place in the device's memory than its addresses say. Memory
  // that processes share lies in files of its own.
  const auto range = here.session->addresses().Find(address);
  // Another thread has freed the memory since it was checked. The other path would post the copy,
  // and only the next wait would report that it has failed.
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  if (range->is_mapped() || range->is_shared()) return std::nullopt;
  const bool there = to_device ? base::CanRead(host, copy.width) : base::CanWrite(host, copy.width);
  if (!there) return std::nullopt;
  for (uint64_t at = 0; at < copy.width;) {
    const uint64_t bytes = std::min(kPieceBytes, copy.width - at);
    const CUresult status = CopyPiece(here, to_device, address + at, host + at, bytes);
    // Another thread has just exported the memory. The other path copies everything.
    if (status == CUDA_ERROR_NOT_SUPPORTED) return std::nullopt;
    if (status != CUDA_SUCCESS) return status;
    at += bytes;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
