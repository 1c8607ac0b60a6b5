// Modules.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/entries.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {
namespace {

CUresult Load(const Here& here, const Image& image, const JitOptions& options, CUmodule* module) {
  auto made = std::make_unique<Module>();
  made->context = here.context_id();
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  uint64_t image_id = 0;
  if (const CUresult status = PutImage(here, image, &image_id); status != CUDA_SUCCESS) {
    return status;
  }
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  rgpuModuleLoad_Reply reply;
  const uint64_t start = base::NowNs();
  const CUresult status = here.channel().Call<op_rgpuModuleLoad>(
      here.issuer(), {id, image_id, options.encoded(), options.info_bytes(), options.error_bytes()},
      &reply);
  options.WriteBack(reply.info_log, reply.error_log, base::NowNs() - start);
  if (status != CUDA_SUCCESS) {
    options.SayWhy(reply.error_log);
    here.session->handles().Remove(id);
    return status;
  }
  *module = MakeHandle<CUmodule>(id);
  return CUDA_SUCCESS;
}

CUresult ModuleHere(CUmodule handle, Here* here, Module** module) {
  *here = AnyHere(HandleValue(handle));
  *module = here->session->handles().Find<Module>(HandleValue(handle));
  if (*module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  here->context = here->session->handles().Find<Context>((*module)->context);
  return here->context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

// With the module's mutex.
CUresult FunctionOf(const Here& here, Module& module, std::string_view name, CUfunction* out) {
  uint64_t id = 0;
  const CUresult status = FindEntry<op_rgpuModuleGetFunction>(
      here, {module.id, here.context_id(), false}, module.functions, name, &id);
  if (status == CUDA_SUCCESS) *out = MakeHandle<CUfunction>(id);
  return status;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  Here here;
  JitOptions jit;
  Image found;
  CUresult status = ContextHere(&here);
  if (status == CUDA_SUCCESS) status = jit.Read(numOptions, options, optionValues);
  if (status == CUDA_SUCCESS) status = FindImage(image, &found);
  return status == CUDA_SUCCESS ? Load(here, found, jit, module) : status;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return shim::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return shim::cuModuleLoadDataEx(module, fatCubin, 0, nullptr, nullptr);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  Here here;
  std::vector<uint8_t> file;
  Image found;
  CUresult status = ContextHere(&here);
  if (status == CUDA_SUCCESS) status = FindImageFile(fname, &file, &found);
  return status == CUDA_SUCCESS ? Load(here, found, {}, module) : status;
}

CUresult cuModuleUnload(CUmodule hmod) {
  Here here;
  Module* module = nullptr;
  if (const CUresult status = ModuleHere(hmod, &here, &module); status != CUDA_SUCCESS) {
    return status;
  }
  if (module->library != 0) return CUDA_ERROR_NOT_PERMITTED;
  const uint64_t id = module->id;
  {
    const std::lock_guard lock(module->mutex);
    for (const auto& [name, function] : module->functions.ids) {
      here.session->handles().Remove(function);
    }
  }
  here.session->addresses().DropOwner(id);
  here.session->handles().Remove(id);
  return here.channel().Post<op_rgpuModuleUnload>(here.issuer(), {id});
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  Here here;
  Module* module = nullptr;
  if (const CUresult status = ModuleHere(hmod, &here, &module); status != CUDA_SUCCESS) {
    return status;
  }
  const std::lock_guard lock(module->mutex);
  return FunctionOf(here, *module, name, hfunc);
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  Here here;
  Module* module = nullptr;
  if (const CUresult status = ModuleHere(mod, &here, &module); status != CUDA_SUCCESS) {
    return status;
  }
  const std::lock_guard lock(module->mutex);
  const CUresult status = LearnNames(here, module->id, 0, module->functions);
  if (status == CUDA_SUCCESS) *count = static_cast<unsigned>(module->functions.names.size());
  return status;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  Here here;
  Module* module = nullptr;
  if (const CUresult status = ModuleHere(mod, &here, &module); status != CUDA_SUCCESS) {
    return status;
  }
  const std::lock_guard lock(module->mutex);
  CUresult status = LearnNames(here, module->id, 0, module->functions);
  if (status != CUDA_SUCCESS) return status;
  for (unsigned i = 0; i < numFunctions && i < module->functions.names.size(); ++i) {
    functions[i] = nullptr;
    const CUresult found = FunctionOf(here, *module, module->functions.names[i], &functions[i]);
    if (found != CUDA_SUCCESS) status = found;  // go on: the other functions are still listed
  }
  return status;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  Here here;
  Module* module = nullptr;
  if (dptr == nullptr && bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ModuleHere(hmod, &here, &module); status != CUDA_SUCCESS) {
    return status;
  }
  const std::lock_guard lock(module->mutex);
  Global global;
  const CUresult status = FindGlobal<op_rgpuModuleGetGlobal>(here, *module, name, name, &global);
  if (status == CUDA_SUCCESS) WriteGlobal(global, dptr, bytes);
  return status;
}

}  // namespace rgpu::shim
