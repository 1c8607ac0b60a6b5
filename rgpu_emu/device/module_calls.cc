// Calls cuModule*.
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/hostile.h"
#include "rgpu_emu/device/load.h"

namespace rgpu::emu {
namespace {

CUresult FindModule(CUmodule handle, std::shared_ptr<Module>* module) {
  *module = TheDevice().modules.Find(Raw(handle));
  return *module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Load(CUmodule* out, const void* image, JitOptions* options) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (Hostile()) WaitAll(context->Pending());
  std::shared_ptr<ModuleCode> code;
  const CUresult loaded = LoadCode(image, options, &code);
  if (loaded != CUDA_SUCCESS) return loaded;
  std::shared_ptr<Module> module;
  const CUresult made = Report(MakeModule(context, std::move(code), 0, &module), options);
  if (made == CUDA_SUCCESS) *out = As<CUmodule>(module->handle);
  return made;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  JitOptions jit(numOptions, options, optionValues);
  return Load(module, image, &jit);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return emu::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return emu::cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint8_t> bytes;
  if (!ReadFile(fname, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  // An image has no explicit length. The zero bytes end a text, and limit how far a damaged header
  // is read.
  bytes.resize(bytes.size() + 64);
  return emu::cuModuleLoadData(module, bytes.data());
}

CUresult cuModuleUnload(CUmodule hmod) {
  std::shared_ptr<Module> module;
  if (const CUresult bad = FindModule(hmod, &module); bad != CUDA_SUCCESS) return bad;
  if (module->library != 0) return CUDA_ERROR_NOT_PERMITTED;
  if (TheDevice().modules.Remove(Raw(hmod)) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  module->Unload();
  return module->context()->Status();
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  std::shared_ptr<Module> module;
  if (const CUresult bad = FindModule(hmod, &module); bad != CUDA_SUCCESS) return bad;
  if (const CUresult status = module->context()->Status(); status != CUDA_SUCCESS) return status;
  const int entry = module->code()->FindEntry(name);
  if (entry < 0) return CUDA_ERROR_NOT_FOUND;
  const CUresult refused = module->code()->Refused(static_cast<size_t>(entry));
  if (refused != CUDA_SUCCESS) return refused;
  *hfunc = As<CUfunction>(module->FunctionOf(static_cast<size_t>(entry), nullptr)->handle);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  std::shared_ptr<Module> module;
  if (const CUresult bad = FindModule(mod, &module); bad != CUDA_SUCCESS) return bad;
  *count = static_cast<unsigned>(module->code()->info().entries.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  std::shared_ptr<Module> module;
  if (const CUresult bad = FindModule(mod, &module); bad != CUDA_SUCCESS) return bad;
  const size_t count = module->code()->info().entries.size();
  CUresult refused = CUDA_SUCCESS;
  for (size_t i = 0; i < numFunctions; ++i) {
    functions[i] = i < count ? As<CUfunction>(module->FunctionOf(i, nullptr)->handle) : nullptr;
    // A refused function gets a handle too, from which its name can be read; the call returns the
    // error.
    if (i < count && refused == CUDA_SUCCESS) refused = module->code()->Refused(i);
  }
  return refused;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  std::shared_ptr<Module> module;
  if (const CUresult bad = FindModule(hmod, &module); bad != CUDA_SUCCESS) return bad;
  const int global = module->code()->FindGlobal(name);
  if (global < 0) return CUDA_ERROR_NOT_FOUND;
  const auto ordinal = static_cast<size_t>(global);
  if (dptr != nullptr) *dptr = module->globals()[ordinal];
  if (bytes != nullptr) *bytes = module->code()->info().globals[ordinal].size;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
