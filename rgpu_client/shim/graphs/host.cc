#include "rgpu_client/shim/graphs/host.h"

#include "rgpu_client/shim/calls/box_sides.h"
#include "rgpu_client/shim/calls/functions.h"
#include "rgpu_client/shim/calls/pinned_params.h"
#include "rgpu_client/shim/calls/stream_values.h"
#include "rgpu_client/shim/graphs/conditionals.h"
#include "rgpu_client/shim/graphs/exec.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/graphs/memory.h"
#include "rgpu_client/shim/host_functions.h"

namespace rgpu::shim {
namespace {

// The surroundings of a call with `context` in place of the thread's own.
CUresult InContext(CUcontext handle, Here* here) {
  *here = InContextHere(handle);
  here->context = here->session->FindContext(handle);
  if (here->context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return here->context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

graph::StreamSite SiteOf(const Here& here) {
  const Stream& stream = *here.stream;
  graph::StreamSite site;
  site.context = MakeHandle<CUcontext>(here.context->id);
  // Handles are small numbers, so the default streams get numbers that no handle has.
  site.id = stream.wire > kWirePerThreadStream
                ? stream.wire
                : (stream.wire << 62) | (uint64_t{stream.thread} << 32) | here.context->id;
  if (stream.wire == kWireLegacyStream) {
    site.kind = graph::StreamKind::kLegacy;
  } else {
    site.kind = (stream.flags & CU_STREAM_NON_BLOCKING) != 0 ? graph::StreamKind::kNonBlocking
                                                             : graph::StreamKind::kBlocking;
  }
  return site;
}

CUresult GraphHost::FindStream(CUstream operand, graph::StreamSite* site) {
  Here here;
  if (const CUresult status = StreamHere(operand, &here); status != CUDA_SUCCESS) return status;
  *site = SiteOf(here);
  return here.channel().sticky();
}

CUresult GraphHost::CurrentContext(CUcontext* context) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  *context = MakeHandle<CUcontext>(here.context->id);
  return CUDA_SUCCESS;
}

CUresult GraphHost::CheckContext(CUcontext context) {
  Here here;
  return InContext(context, &here);
}

CUresult GraphHost::CheckEvent(CUevent event) {
  const auto* found = SessionOf(HandleValue(event))->handles().Find<Event>(HandleValue(event));
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult GraphHost::FindKernel(CUfunction function, CUkernel kernel, CUcontext context,
                               graph::KernelSite* site) {
  const Function* found = function != nullptr ? FindFunction(function) : FindFunction(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!found->has_layout) return CUDA_ERROR_INVALID_IMAGE;
  if (!found->is_kernel) {
    site->context = MakeHandle<CUcontext>(uint64_t{found->context});
  } else if (context != nullptr) {
    site->context = context;
  } else if (const CUresult status = CurrentContext(&site->context); status != CUDA_SUCCESS) {
    return status;
  }
  for (const Param& param : found->params) site->places.push_back({param.offset, param.bytes});
  site->param_bytes = found->param_bytes;
  return CheckContext(site->context);
}

CUresult GraphHost::CheckKernel(const graph::KernelParams& params) {
  Here here;
  if (const CUresult status = InContext(params.context, &here); status != CUDA_SUCCESS) {
    return status;
  }
  Function* function =
      params.function != nullptr ? FindFunction(params.function) : FindFunction(params.kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto id :
       {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION}) {
    const auto* cluster = graph::FindAttribute(params.attributes, id);
    const CUresult status = cluster == nullptr ? CUDA_SUCCESS : CheckCluster(*cluster);
    if (status != CUDA_SUCCESS) return status;
  }
  const auto* cooperative =
      graph::FindAttribute(params.attributes, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  Geometry geometry;
  for (size_t i = 0; i < 3; ++i) {
    geometry.grid[i] = params.grid[i];
    geometry.block[i] = params.block[i];
  }
  geometry.shared_bytes = params.shared_bytes;
  return CheckLaunch(here, *function, geometry,
                     cooperative != nullptr && cooperative->cooperative != 0);
}

CUresult GraphHost::CheckCopy(const graph::CopyParams& params) {
  Here here;
  if (const CUresult status = InContext(params.context, &here); status != CUDA_SUCCESS) {
    return status;
  }
  Copy copy;
  return CopyOfNode(here, params.copy, &copy);
}

CUresult GraphHost::CheckSet(const graph::SetParams& params) {
  Here here;
  const auto& set = params.set;
  if (const CUresult status = InContext(set.ctx, &here); status != CUDA_SUCCESS) return status;
  const unsigned element = set.elementSize;
  uint64_t row_bytes = 0;
  if ((element != 1 && element != 2 && element != 4) || set.width == 0 || set.height == 0 ||
      __builtin_mul_overflow(set.width, uint64_t{element}, &row_bytes) || set.dst % element != 0 ||
      (set.height > 1 && set.pitch % element != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Side target{set.dst, set.pitch, true};
  if (const CUresult status = UseImage(here, &target.address); status != CUDA_SUCCESS) {
    return status;
  }
  const bool known = IsKnownDeviceMemory(here, target, row_bytes, set.height);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult GraphHost::CheckBatch(const graph::BatchParams& params) {
  Here here;
  if (const CUresult status = InContext(params.context, &here); status != CUDA_SUCCESS) {
    return status;
  }
  for (const CUstreamBatchMemOpParams& one : params.operations) {
    if (const CUresult bad = CheckOperation(here, one); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult GraphHost::Allocate(const graph::AllocParams& params,
                             std::shared_ptr<graph::Allocation>* out) {
  return AllocateForGraph(params, out);
}

CUresult GraphHost::NewConditional(uint64_t root, graph::ConditionalHandle* handle) {
  Here here;
  const CUresult status = InContext(handle->context, &here);
  return status == CUDA_SUCCESS ? MakeConditional(here, root, handle) : status;
}

CUresult GraphHost::NewExec(graph::Instance instance, std::shared_ptr<graph::Exec>* exec) {
  return MakeExec(std::move(instance), exec);
}

// The destructor runs where host functions run: there CUDA calls are refused.
void GraphHost::Destroyed(std::shared_ptr<graph::UserObject> object) {
  HostCall call;
  call.function = [](void* data) { static_cast<graph::UserObject*>(data)->Destroy(); };
  call.data = object.get();
  call.keep = std::move(object);
  HostFunctions::Run(nullptr, 0, call, CUDA_SUCCESS);
}

namespace {

// Pointers, because a forked child needs new ones.
GraphHost* g_host = new GraphHost;
graph::Model* g_model = new graph::Model(g_host);

}  // namespace

graph::Model& Graphs() { return *g_model; }

void ForgetGraphs() {
  g_model = new graph::Model(g_host);
  ForgetConditionals();
}

}  // namespace rgpu::shim
