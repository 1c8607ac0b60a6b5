// Functions and kernels: names, parameters, attributes.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/functions.h"
#include "rgpu_client/shim/calls/images.h"
#include "rgpu_client/shim/calls/twins.h"

namespace rgpu::shim {
namespace {

using Hint = rgpuFunctionHint_Request;

CUresult ParamInfo(const Function* function, size_t index, size_t* offset, size_t* bytes) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (index >= function->params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->params[index].offset;
  if (bytes != nullptr) *bytes = function->params[index].bytes;
  return CUDA_SUCCESS;
}

CUresult GetAttribute(const Function* function, CUfunction_attribute attribute, int* out) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || attribute < 0 || attribute >= Function::kAttributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = function->attributes[static_cast<size_t>(attribute)].load();
  return CUDA_SUCCESS;
}

// Checks the limits at the call, because programs try large values and expect the error from this
// call.
CUresult CheckAttribute(const Here& here, const Function& function, int attribute, int value) {
  const Device* device =
      here.session->devices().Find(here.context == nullptr ? 0 : here.context->device);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int most = device->Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
      const int fixed = function.attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES].load();
      return value >= 0 && value <= most - fixed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return device->Attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0 ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // read only, or unknown
  }
}

CUresult SetAttribute(const Here& here, Function* function, int attribute, int value) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult checked = CheckAttribute(here, *function, attribute, value);
  if (checked != CUDA_SUCCESS) return checked;
  function->attributes[static_cast<size_t>(attribute)] = value;
  const std::lock_guard lock(function->mutex);
  function->answers.clear();
  return here.channel().Post<op_rgpuFunctionSetAttribute>(
      here.issuer(), {FunctionOperand(*function), KernelOperand(*function), attribute, value});
}

CUresult PostHint(const Here& here, const Function* function, int32_t what, int value) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return here.channel().Post<op_rgpuFunctionHint>(
      here.issuer(), {FunctionOperand(*function), KernelOperand(*function), what, value});
}

Function* FindKernel(CUkernel handle) {
  Function* function = FindFunction(handle);
  return function != nullptr && function->is_kernel ? function : nullptr;
}

// The kernel as the device `dev` has it. A library is loaded there first if it is not yet.
CUresult KernelHere(CUkernel handle, CUdevice dev, Here* here, Function** function) {
  *function = FindKernel(handle);
  if (*function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *here = CodeHere(HandleValue(handle));
  if (LiveSessions().size() < 2 || SessionOfDevice(dev) == here->session) return CUDA_SUCCESS;
  *here = CodeOnDevice(dev);
  return here->context == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                                  : KernelIn(*here, **function, function);
}

CUresult FunctionHere(CUfunction handle, Here* here, Function** function) {
  *here = AnyHere(HandleValue(handle));
  *function = FindFunction(handle);
  if (*function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((*function)->is_kernel) {
    const CUresult status = ContextHere(here);
    return status == CUDA_SUCCESS ? KernelIn(*here, **function, function) : status;
  }
  here->context = here->session->handles().Find<Context>((*function)->context);
  return here->context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

}  // namespace

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return GetAttribute(FindFunction(hfunc), attrib, pi);
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Here here;
  Function* function = nullptr;
  const CUresult status = KernelHere(kernel, dev, &here, &function);
  return status == CUDA_SUCCESS ? GetAttribute(function, attrib, pi) : status;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Here here;
  Function* function = nullptr;
  const CUresult status = FunctionHere(hfunc, &here, &function);
  return status == CUDA_SUCCESS ? SetAttribute(here, function, attrib, value) : status;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Here here;
  Function* function = nullptr;
  const CUresult status = KernelHere(kernel, dev, &here, &function);
  return status == CUDA_SUCCESS ? SetAttribute(here, function, attrib, val) : status;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  Here here;
  Function* function = nullptr;
  const CUresult status = FunctionHere(hfunc, &here, &function);
  return status == CUDA_SUCCESS ? PostHint(here, function, Hint::kCacheConfig, config) : status;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  Here here;
  Function* function = nullptr;
  const CUresult status = KernelHere(kernel, dev, &here, &function);
  return status == CUDA_SUCCESS ? PostHint(here, function, Hint::kCacheConfig, config) : status;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  Here here;
  Function* function = nullptr;
  const CUresult status = FunctionHere(hfunc, &here, &function);
  return status == CUDA_SUCCESS ? PostHint(here, function, Hint::kSharedMemConfig, config) : status;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Function* function = FindFunction(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  return shim::cuFuncGetName(name, reinterpret_cast<CUfunction>(hfunc));
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  return ParamInfo(FindFunction(func), paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  return ParamInfo(FindKernel(kernel), paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  const Function* function = FindFunction(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function->kernel != 0) {
    const Function* kernel =
        SessionOf(function->kernel)->handles().Find<Function>(function->kernel);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return shim::cuLibraryGetModule(hmod, MakeHandle<CUlibrary>(kernel->owner));
  }
  if (function->is_kernel)
    return shim::cuLibraryGetModule(hmod, MakeHandle<CUlibrary>(function->owner));
  *hmod = MakeHandle<CUmodule>(function->owner);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  const Function* function = FindKernel(kernel);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = MakeHandle<CUlibrary>(function->owner);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  Function* found = FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = KernelIn(here, *found, &found); bad != CUDA_SUCCESS) return bad;
  const std::lock_guard lock(found->mutex);
  uint64_t& view = found->functions[here.context_id()];
  if (here.session->handles().Find<Function>(view) == nullptr) {
    const NewFunction made =
        AddFunction(*here.session, here.context_id(), false, found->owner, found->name);
    if (made.id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    made.function->kernel = found->id;
    rgpuKernelGetFunction_Reply reply;
    CUresult status =
        here.channel().Call<op_rgpuKernelGetFunction>(here.issuer(), {found->id, made.id}, &reply);
    if (status == CUDA_SUCCESS &&
        !DescribeFunction(*made.function, reply.params, reply.attributes)) {
      status = CUDA_ERROR_UNKNOWN;
    }
    if (status != CUDA_SUCCESS) {
      here.session->handles().Remove(made.id);
      return status;
    }
    view = made.id;
  }
  *pFunc = MakeHandle<CUfunction>(view);
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  Here here;
  Function* found = nullptr;
  CUresult status = FunctionHere(function, &here, &found);
  if (status != CUDA_SUCCESS) return status;
  if (found->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  rgpuFunctionLoad_Reply reply;
  status = here.channel().Call<op_rgpuFunctionLoad>(
      here.issuer(), {found->id, rgpuFunctionLoad_Request::kAsk}, &reply);
  if (status == CUDA_SUCCESS) *state = static_cast<CUfunctionLoadingState>(reply.state);
  return status;
}

CUresult cuFuncLoad(CUfunction function) {
  Here here;
  Function* found = nullptr;
  const CUresult status = FunctionHere(function, &here, &found);
  if (status != CUDA_SUCCESS) return status;
  if (found->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  rgpuFunctionLoad_Reply reply;
  return here.channel().Call<op_rgpuFunctionLoad>(
      here.issuer(), {found->id, rgpuFunctionLoad_Request::kLoad}, &reply);
}

}  // namespace rgpu::shim
