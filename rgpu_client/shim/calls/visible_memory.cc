#include "rgpu_client/shim/calls/visible_memory.h"

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/paged/active.h"

namespace rgpu::shim {
namespace {

// What the server gave for an allocation of whole pages.
struct Pages {
  uint64_t server_base = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;
};

void Free(const Here& here, uint64_t server_base) {
  here.channel().Post<op_rgpuMemFree>(here.issuer(), {server_base});
}

// The pages must hold nothing else. A driver that gives smaller pieces than pages gets a second,
// larger request, in which whole pages are found.
CUresult AllocatePages(const Here& here, uint64_t bytes, Pages* pages) {
  if (bytes > UINT64_MAX - 2 * kPageBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  pages->bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  for (const uint64_t more : {uint64_t{0}, kPageBytes}) {
    const CUresult status = AllocateByCall(here, pages->bytes + more, &pages->server_base);
    if (status != CUDA_SUCCESS) return status;
    pages->base = (pages->server_base + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (pages->base == pages->server_base || more != 0) return CUDA_SUCCESS;
    Free(here, pages->server_base);
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult BadAddress(const Here& here) {
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                           "the server gave an address outside its band or one in use");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

Range MakeRange(const Here& here, uint64_t base, uint64_t bytes, RangeKind kind) {
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.context = here.context_id();
  range.device = here.context->device;
  return range;
}

// Lets the program use the pages: the device's own where this process has them, else tracked ones.
CUresult Show(const Here& here, const Pages& pages) {
  if (here.session->direct().Show(pages.base, pages.bytes)) return CUDA_SUCCESS;
  return here.session->paged().Add(here, pages.base, pages.bytes);
}

}  // namespace

CUresult AllocateVisible(const Here& here, uint64_t bytes, RangeKind kind, unsigned flags,
                         uint64_t* address) {
  Session& session = *here.session;
  if (here.channel().Lacks(Opcode::rgpuPageStreamCreate)) return CUDA_ERROR_NOT_SUPPORTED;
  Pages pages;
  if (const CUresult status = AllocatePages(here, bytes, &pages); status != CUDA_SUCCESS) {
    return status;
  }
  // The whole pages are mapped over what lies there, so nothing else may.
  Range range = MakeRange(here, pages.base, bytes, kind);
  range.flags = flags;
  range.server_base = pages.server_base;
  const uint64_t rest = pages.bytes - bytes;
  if (!session.AcceptAddresses(pages.server_base, pages.base - pages.server_base + pages.bytes) ||
      (rest != 0 && session.addresses().Meets(pages.base + bytes, rest)) ||
      !session.addresses().Add(range)) {
    return BadAddress(here);
  }
  CUresult status = CUDA_ERROR_NOT_SUPPORTED;
  if (session.HoldsAddresses(pages.base, pages.bytes)) status = Show(here, pages);
  if (status != CUDA_SUCCESS) {
    session.addresses().Take(pages.base, kind, kind);
    Free(here, pages.server_base);
    return status;
  }
  SetPagedBit(session.number(), kVisibleRanges, true);
  *address = pages.base;
  return CUDA_SUCCESS;
}

void ForgetVisible(Session& session, const Range& range) {
  if (range.kind == RangeKind::kHostImage) {
    session.paged().RemoveMirror(range.owner);
    return;
  }
  const uint64_t bytes = (range.bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (!session.paged().Remove(range.base)) ReserveAgain({range.base, bytes});
  session.advice().Forget(range.base, range.bytes);
}

CUresult FreeVisible(const Here& here, const Range& range) {
  ForgetVisible(*here.session, range);
  Here there = here;
  there.context = here.session->handles().Find<Context>(range.context);
  if (there.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult status = there.channel().Post<op_rgpuMemFree>(there.issuer(), {range.server_base});
  there.channel().Flush();  // another process of the lease may wait for the memory
  return status;
}

CUresult ImageOf(const Here& here, const Range& host, Range* image) {
  Session& session = *here.session;
  if (here.channel().Lacks(Opcode::rgpuPageStreamCreate)) return CUDA_ERROR_INVALID_VALUE;
  if (const auto known = session.addresses().ImageOf(host.base)) {
    *image = *known;
    return CUDA_SUCCESS;
  }
  uint64_t device = 0;
  CUresult status = AllocateByCall(here, host.bytes, &device);
  if (status != CUDA_SUCCESS) return status;
  *image = MakeRange(here, device, host.bytes, RangeKind::kHostImage);
  image->owner = host.base;
  image->server_base = device;
  if (!session.AcceptAddresses(image->base, image->bytes) || !session.addresses().Add(*image)) {
    return BadAddress(here);
  }
  status = session.paged().AddMirror(here, host.base, image->base, host.bytes);
  if (status == CUDA_SUCCESS) return CUDA_SUCCESS;
  session.addresses().Take(image->base, RangeKind::kHostImage, RangeKind::kHostImage);
  Free(here, image->base);
  return status;
}

namespace {

// What kernels have written to the image until now reaches the program's memory first.
void FreeImageIn(Session& session, uint64_t host) {
  const auto image = session.addresses().ImageOf(host);
  if (!image) return;
  Here there{&session, &ThisThread(), nullptr, nullptr};
  there.context = session.handles().Find<Context>(image->context);
  if (there.context != nullptr && SynchronizeContext(there) == CUDA_SUCCESS) {
    session.paged().AfterCall(true);
  }
  // Another thread may have freed it meanwhile.
  if (!session.addresses().Take(image->base, image->kind, image->kind)) return;
  session.paged().RemoveMirror(host);
  if (there.context != nullptr) Free(there, image->base);
}

}  // namespace

void FreeImages(const Range& host) {
  if (!PagedHas(kMirrors)) return;
  for (Session* const session : LiveSessions()) FreeImageIn(*session, host.base);
}

}  // namespace rgpu::shim
