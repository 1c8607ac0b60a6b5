// Device memory: allocation and free, also from pools, and cuMemGetInfo.
#include "rgpu_client/shim/calls/memory.h"
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/recording.h"
#include "rgpu_client/shim/calls/visible_memory.h"
#include "rgpu_client/shim/credit_keeper.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/graphs/memory.h"
#include "rgpu_common/native/base/box_copy.h"

namespace rgpu::shim {
namespace {

// A free of at least this size is sent at once, because another process of the lease may wait for
// the memory.
constexpr uint64_t kPromptFreeBytes = 1U << 20;

CUresult Remember(const Here& here, uint64_t base, uint64_t bytes, RangeKind kind, uint64_t pool,
                  bool cut = false) {
  Range range;
  range.cut = cut;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.context = here.context_id();
  range.device = here.context->device;
  range.pool = pool;
  // A server that gives an address outside the band, or one that is in use, is faulty or hostile:
  // the session ends.
  if (here.session->AcceptAddresses(base, bytes) && here.session->addresses().Add(range)) {
    return CUDA_SUCCESS;
  }
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                           "the server gave an address outside its band or one in use");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

// Takes note of what the worker grants with an allocation.
CUresult TakeGrant(const Here& here, const rgpuMemAllocAhead_Reply& reply) {
  if (reply.window_bytes == 0) return CUDA_SUCCESS;
  MemoryCredit& credit = here.session->memory_credit();
  if (!here.session->AcceptAddresses(reply.window, reply.window_bytes) ||
      !credit.Open({reply.window, reply.window_bytes, reply.granule, reply.gap})) {
    here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                             "the server granted memory credit at addresses that cannot be used");
    return CUDA_ERROR_EXTERNAL_DEVICE;
  }
  credit.Granted(reply.granted);
  return CUDA_SUCCESS;
}

// Command `seq` frees an allocation that was cut from the credit.
void FreeCut(const Here& here, const Range& range, uint64_t seq) {
  here.session->memory_credit().Free(range.base, range.bytes, seq);
  CreditKeeper::Need(here.session);
}

// Cuts an allocation from the credit. If there is not enough, looks whether the worker has granted
// more meanwhile.
std::optional<uint64_t> Cut(const Here& here, uint64_t bytes) {
  // The first launch of a kernel may fail for want of memory, and this call has to report it.
  if (here.sent().doubtful_seq > here.sent().reported_seq) return std::nullopt;
  MemoryCredit& credit = here.session->memory_credit();
  if (const auto address = credit.Cut(bytes)) return address;
  if (!credit.active()) return std::nullopt;
  here.channel().Poll();
  return credit.Cut(bytes);
}

}  // namespace

CUresult AllocateByCall(const Here& here, uint64_t bytes, uint64_t* address) {
  if (!here.channel().Lacks(Opcode::rgpuMemAllocAhead)) {
    const MemoryCredit::Ask ask = here.session->memory_credit().AskFor(bytes);
    const uint64_t wish = ask.wish != 0 && CreditKeeper::Need(here.session) ? ask.wish : 0;
    if (wish != 0 || ask.returned != 0) {
      rgpuMemAllocAhead_Reply reply;
      CUresult status = here.channel().Call<op_rgpuMemAllocAhead>(
          here.issuer(), {bytes, ask.returned, wish}, &reply);
      if (status == CUDA_SUCCESS) {
        status = TakeGrant(here, reply);
      } else {
        // An earlier error of this thread may have kept the worker from carrying out the call.
        here.session->TellReturned(ask.returned);
      }
      *address = reply.dptr;
      return status;
    }
  }
  rgpuMemAlloc_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuMemAlloc>(here.issuer(), {bytes}, &reply);
  *address = reply.dptr;
  return status;
}

CUresult AllocateDevice(const Here& here, uint64_t bytes, CUdeviceptr* dptr) {
  rgpuMemAlloc_Reply reply;
  CUresult status = here.channel().Call<op_rgpuMemAlloc>(here.issuer(), {bytes}, &reply);
  if (status == CUDA_SUCCESS) status = Remember(here, reply.dptr, bytes, RangeKind::kDevice, 0);
  if (status == CUDA_SUCCESS) *dptr = reply.dptr;
  return status;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  uint64_t address = 0;
  CUresult status = CUDA_SUCCESS;
  const auto cut = Cut(here, bytesize);
  if (cut) {
    address = *cut;
    PostOptions options;
    options.soon = true;  // what uses the memory is sent behind it
    status = here.channel().Post<op_rgpuMemBack>(here.issuer(), {address, bytesize}, options);
  } else {
    status = AllocateByCall(here, bytesize, &address);
  }
  if (status == CUDA_SUCCESS) {
    status = Remember(here, address, bytesize, RangeKind::kDevice, 0, cut.has_value());
  }
  if (status == CUDA_SUCCESS) *dptr = address;
  return status;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  Here here;
  const bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (!element || WidthInBytes > base::kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  rgpuMemAllocPitch_Reply reply;
  CUresult status = here.channel().Call<op_rgpuMemAllocPitch>(
      here.issuer(), {WidthInBytes, Height, ElementSizeBytes}, &reply);
  if (status != CUDA_SUCCESS) return status;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(reply.pitch, Height, &bytes)) return CUDA_ERROR_UNKNOWN;
  status = Remember(here, reply.dptr, bytes, RangeKind::kDevice, 0);
  if (status != CUDA_SUCCESS) return status;
  *dptr = reply.dptr;
  *pPitch = reply.pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (dptr == 0) return CUDA_SUCCESS;
  Here here = AddressHere(dptr);
  CUresult over = CheckUnsafe();
  if (over != CUDA_SUCCESS || FreeOfGraph(dptr, &over)) return over;
  AddressMap& addresses = here.session->addresses();
  if (const auto managed = addresses.Take(dptr, RangeKind::kManaged, RangeKind::kManaged)) {
    return FreeVisible(here, *managed);
  }
  const auto range = addresses.Take(dptr, RangeKind::kDevice, RangeKind::kPool);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  here.context = here.session->handles().Find<Context>(range->context);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t seq = 0;
  PostOptions options;
  options.seq = &seq;
  options.soon = range->cut;
  const CUresult status = here.channel().Post<op_rgpuMemFree>(here.issuer(), {dptr}, options);
  if (range->cut) {
    FreeCut(here, *range, seq);
  } else if (range->bytes >= kPromptFreeBytes) {
    here.channel().Flush();
  }
  // The program may tell another process that the memory is gone: that process must not get it any
  // more.
  const bool told = range->exported && !here.channel().Lacks(Opcode::rgpuIpcSettle);
  return status == CUDA_SUCCESS && told ? SettleShared(here) : status;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto range = here.session->addresses().Find(dptr);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range->base;
  if (psize != nullptr) *psize = range->bytes;
  return CUDA_SUCCESS;
}

CUresult AllocateFromPool(const Here& here, uint64_t pool_handle, uint64_t bytes,
                          CUdeviceptr* dptr) {
  Pool* pool = here.session->handles().Find<Pool>(pool_handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {  // unlike cuMemAlloc, whose text forbids it
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  CUresult over = CUDA_SUCCESS;
  const bool captured = Captured(here, &over, [&](graph::Params* params) {
    return MakeAllocNode(pool->device, bytes, dptr, params);
  });
  if (captured) return over;
  rgpuPoolAlloc_Reply reply;
  CUresult status = here.channel().Call<op_rgpuPoolAlloc>(
      here.issuer(), {pool->wire, bytes, here.stream->wire}, &reply);
  if (status == CUDA_SUCCESS) {
    MarkSynced(here.context->work_seq, here.sent().reported_seq);
    status = Remember(here, reply.dptr, bytes, RangeKind::kPool, pool->id);
  }
  if (status == CUDA_SUCCESS) *dptr = reply.dptr;
  return status;
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  const Device& device = *here.session->devices().Find(here.context->device);
  return AllocateFromPool(here, device.current_pool.load(), bytesize, dptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  return AllocateFromPool(here, HandleValue(pool), bytesize, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  if (dptr == 0) return CUDA_SUCCESS;
  CUresult over = CUDA_SUCCESS;
  const bool captured = Captured(here, &over, [&](graph::Params* params) {
    *params = graph::FreeParams{dptr};
    return graph::IsGraphMemory(Graphs(), dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
  if (captured || FreeOfGraph(dptr, &over)) return over;
  const auto range = here.session->addresses().Take(dptr, RangeKind::kPool, RangeKind::kDevice);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  uint64_t seq = 0;
  PostOptions options = Work(here, Reach::kNamed);
  options.seq = &seq;
  const CUresult status =
      here.channel().Post<op_rgpuPoolFree>(here.issuer(), {dptr, here.stream->wire}, options);
  if (range->cut) FreeCut(here, *range, seq);
  if (status == CUDA_SUCCESS && range->kind == RangeKind::kPool) {
    here.session->stream_frees().Add(*here.stream, seq);
  }
  return status;
}

}  // namespace rgpu::shim
