// Memory and events that processes of one lease share. The 64 bytes of a handle are a token of the
// server, which means nothing to the driver.
#include <string.h>

#include <memory>
#include <string>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/recording.h"

namespace rgpu::shim {
namespace {

static_assert(sizeof(CUipcMemHandle) == CU_IPC_HANDLE_SIZE);
static_assert(sizeof(CUipcEventHandle) == CU_IPC_HANDLE_SIZE);

// False: the server broke the protocol, and the session ends.
bool TakeToken(const Here& here, wire::ByteView token, void* handle) {
  if (token.size != CU_IPC_HANDLE_SIZE) {
    here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, "the server sent a token of a wrong size");
    return false;
  }
  memcpy(handle, token.data, CU_IPC_HANDLE_SIZE);
  return true;
}

// Notes memory of another process that the server has mapped.
CUresult Note(const Here& here, const rgpuIpcOpenMemory_Reply& reply) {
  Range range;
  range.base = reply.dptr;
  range.bytes = reply.bytes;
  range.kind = RangeKind::kImported;
  range.context = here.context_id();
  range.device = here.context->device;
  const bool ends = reply.dptr + reply.bytes >= reply.dptr;
  if (ends && here.session->AcceptAddresses(reply.dptr, reply.bytes) &&
      here.session->addresses().Add(range)) {
    return CUDA_SUCCESS;
  }
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                           "the server mapped memory outside its band or at addresses in use");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

}  // namespace

CUresult SettleShared(const Here& here) {
  rgpuIpcSettle_Reply reply;
  return here.channel().Call<op_rgpuIpcSettle>(here.issuer(), {}, &reply);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto range = here.session->addresses().Find(dptr);
  // Only memory of cuMemAlloc. Pools and mapped memory are shared in other ways.
  if (!range || range->kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  rgpuIpcExportMemory_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuIpcExportMemory>(here.issuer(), {dptr}, &reply);
  if (status != CUDA_SUCCESS) return status;
  if (!TakeToken(here, reply.token, pHandle)) return CUDA_ERROR_EXTERNAL_DEVICE;
  here.session->addresses().SetExported(dptr);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int flags) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const std::string token(handle.reserved, sizeof handle.reserved);
  Imports& imports = here.session->imports();
  const std::lock_guard lock(imports.calls());
  if (const uint64_t base = imports.Again(token, here.context_id()); base != 0) {
    *pdptr = base;
    return CUDA_SUCCESS;
  }
  rgpuIpcOpenMemory_Reply reply;
  CUresult status =
      here.channel().Call<op_rgpuIpcOpenMemory>(here.issuer(), {wire::Bytes(token), flags}, &reply);
  if (status == CUDA_SUCCESS) status = Note(here, reply);
  if (status != CUDA_SUCCESS) return status;
  imports.Add(reply.dptr, token, here.context_id());
  *pdptr = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  Here here = AddressHere(dptr);
  Imports& imports = here.session->imports();
  const std::lock_guard lock(imports.calls());
  const auto range = here.session->addresses().Find(dptr);
  if (!range || range->base != dptr || range->kind != RangeKind::kImported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!imports.Drop(dptr)) return CUDA_SUCCESS;
  here.session->addresses().Take(dptr, RangeKind::kImported, RangeKind::kImported);
  here.context = here.session->handles().Find<Context>(range->context);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  rgpuIpcCloseMemory_Reply reply;
  return here.channel().Call<op_rgpuIpcCloseMemory>(here.issuer(), {dptr}, &reply);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent hEvent) {
  Here here = AnyHere(HandleValue(hEvent));
  const Event* event = here.session->handles().Find<Event>(HandleValue(hEvent));
  // An event that another process has made is not exported again.
  if (event == nullptr || (event->flags & CU_EVENT_INTERPROCESS) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  here.context = here.session->handles().Find<Context>(event->context);
  rgpuIpcExportEvent_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuIpcExportEvent>(here.issuer(), {event->id}, &reply);
  if (status != CUDA_SUCCESS) return status;
  return TakeToken(here, reply.token, pHandle) ? CUDA_SUCCESS : CUDA_ERROR_EXTERNAL_DEVICE;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  auto made = std::make_unique<Event>();
  made->context = here.context_id();
  made->flags = CU_EVENT_DISABLE_TIMING;
  made->shared = true;
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuIpcOpenEvent_Reply reply;
  const wire::ByteView token = wire::Bytes(handle.reserved, sizeof handle.reserved);
  const CUresult status =
      here.channel().Call<op_rgpuIpcOpenEvent>(here.issuer(), {id, token}, &reply);
  if (status != CUDA_SUCCESS) {
    here.session->handles().Remove(id);
    return status;
  }
  *phEvent = MakeHandle<CUevent>(id);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
