// Libraries: images that belong to no context.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/entries.h"
#include "rgpu_client/shim/calls/twins.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {
namespace {

// A library belongs to the process, and a program may load it before it has a context. The worker
// needs one, so the process then keeps the primary context of its first device.
CUresult LoadHere(Here* here) {
  *here = CodeHere();
  if (here->context != nullptr) return CUDA_SUCCESS;
  CUcontext kept = nullptr;
  const CUresult status = shim::cuDevicePrimaryCtxRetain(&kept, 0);
  if (status == CUDA_SUCCESS) *here = CodeHere();
  return status;
}

CUresult Load(const Image& image, const JitOptions& options, CUlibrary* library) {
  Here here;
  if (const CUresult status = LoadHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  uint64_t image_id = 0;
  if (const CUresult status = PutImage(here, image, &image_id); status != CUDA_SUCCESS) {
    return status;
  }
  const uint64_t id = here.session->handles().Add(std::make_unique<Library>());
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuLibraryLoad_Reply reply;
  const uint64_t start = base::NowNs();
  const CUresult status = here.channel().Call<op_rgpuLibraryLoad>(
      here.issuer(), {id, image_id, options.encoded(), options.info_bytes(), options.error_bytes()},
      &reply);
  options.WriteBack(reply.info_log, reply.error_log, base::NowNs() - start);
  if (status != CUDA_SUCCESS) {
    options.SayWhy(reply.error_log);
    here.session->handles().Remove(id);
    return status;
  }
  KeepForTwins(*here.session->handles().Find<Library>(id), image, options);
  *library = MakeHandle<CUlibrary>(id);
  return CUDA_SUCCESS;
}

Library* FindLibrary(CUlibrary handle) {
  return SessionOf(HandleValue(handle))->handles().Find<Library>(HandleValue(handle));
}

// With the library's mutex.
CUresult FindKernel(const Here& here, Library& library, std::string_view name, CUkernel* out) {
  uint64_t id = 0;
  const CUresult status =
      FindEntry<op_rgpuLibraryGetKernel>(here, {library.id, 0, true}, library.kernels, name, &id);
  if (status == CUDA_SUCCESS) *out = MakeHandle<CUkernel>(id);
  return status;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*,
                           void**, unsigned int) {
  JitOptions jit;
  Image found;
  CUresult status = jit.Read(numJitOptions, jitOptions, jitOptionsValues);
  if (status == CUDA_SUCCESS) status = FindImage(code, &found);
  return status == CUDA_SUCCESS ? Load(found, jit, library) : status;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption*, void**, unsigned int) {
  JitOptions jit;
  std::vector<uint8_t> file;
  Image found;
  CUresult status = jit.Read(numJitOptions, jitOptions, jitOptionsValues);
  if (status == CUDA_SUCCESS) status = FindImageFile(fileName, &file, &found);
  return status == CUDA_SUCCESS ? Load(found, jit, library) : status;
}

CUresult cuLibraryUnload(CUlibrary library) {
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Here here = CodeHere(found->id);
  const uint64_t id = found->id;
  for (const uint64_t twin : DropTwins(id)) shim::cuLibraryUnload(MakeHandle<CUlibrary>(twin));
  {
    const std::lock_guard lock(found->mutex);
    for (const auto& [name, kernel] : found->kernels.ids) {
      if (const Function* function = here.session->handles().Find<Function>(kernel)) {
        for (const auto& [context, view] : function->functions)
          here.session->handles().Remove(view);
      }
      here.session->handles().Remove(kernel);
    }
    for (const auto& [context, module] : found->modules) here.session->handles().Remove(module);
  }
  here.session->addresses().DropOwner(id);
  here.session->handles().Remove(id);
  return here.channel().Post<op_rgpuLibraryUnload>(here.issuer(), {id});
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(found->mutex);
  return FindKernel(CodeHere(found->id), *found, name, pKernel);
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  Library* found = FindLibrary(lib);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(found->mutex);
  const CUresult status = LearnNames(CodeHere(found->id), 0, found->id, found->kernels);
  if (status == CUDA_SUCCESS) *count = static_cast<unsigned>(found->kernels.names.size());
  return status;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  Library* found = FindLibrary(lib);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Here here = CodeHere(found->id);
  const std::lock_guard lock(found->mutex);
  CUresult status = LearnNames(here, 0, found->id, found->kernels);
  if (status != CUDA_SUCCESS) return status;
  for (unsigned i = 0; i < numKernels && i < found->kernels.names.size(); ++i) {
    kernels[i] = nullptr;
    const CUresult one = FindKernel(here, *found, found->kernels.names[i], &kernels[i]);
    if (one != CUDA_SUCCESS) status = one;  // go on: the other kernels are still listed
  }
  return status;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = LibraryIn(here, *found, &found); bad != CUDA_SUCCESS) return bad;
  const std::lock_guard lock(found->mutex);
  uint64_t& module = found->modules[here.context_id()];
  if (here.session->handles().Find<Module>(module) == nullptr) {
    auto made = std::make_unique<Module>();
    made->context = here.context_id();
    made->library = found->id;
    const uint64_t id = here.session->handles().Add(std::move(made));
    if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    rgpuLibraryGetModule_Reply reply;
    const CUresult status =
        here.channel().Call<op_rgpuLibraryGetModule>(here.issuer(), {found->id, id}, &reply);
    if (status != CUDA_SUCCESS) {
      here.session->handles().Remove(id);
      return status;
    }
    module = id;
  }
  *pMod = MakeHandle<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  Here here;
  if (dptr == nullptr && bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = LibraryIn(here, *found, &found); bad != CUDA_SUCCESS) return bad;
  const std::lock_guard lock(found->mutex);
  const std::pair key(here.context_id(), std::string(name));
  Global global;
  const CUresult status = FindGlobal<op_rgpuLibraryGetGlobal>(here, *found, key, name, &global);
  if (status == CUDA_SUCCESS) WriteGlobal(global, dptr, bytes);
  return status;
}

}  // namespace rgpu::shim
