// Calls cuLibrary* and cuKernel*.
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/function.h"
#include "rgpu_emu/device/load.h"

namespace rgpu::emu {
namespace {

CUresult FindLibrary(CUlibrary handle, std::shared_ptr<Library>* library) {
  *library = TheDevice().libraries.Find(Raw(handle));
  return *library == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult FindKernel(CUkernel handle, std::shared_ptr<LibraryKernel>* kernel,
                    std::shared_ptr<Library>* library) {
  *kernel = TheDevice().kernels.Find(Raw(handle));
  if (*kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *library = (*kernel)->library();
  return *library == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// Finds the library's module in the current context.
CUresult ModuleHere(CUlibrary handle, std::shared_ptr<Module>* module) {
  std::shared_ptr<Library> library;
  if (const CUresult bad = FindLibrary(handle, &library); bad != CUDA_SUCCESS) return bad;
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  return found == CUDA_SUCCESS ? library->ModuleIn(context, module).result : found;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*,
                           void**, unsigned int) {
  if (code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit(numJitOptions, jitOptions, jitOptionsValues);
  std::shared_ptr<ModuleCode> loaded;
  const CUresult result = LoadCode(code, &jit, &loaded);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t handle = NewHandle(HandleKind::kLibrary);
  TheDevice().libraries.Add(handle, std::make_shared<Library>(handle, std::move(loaded)));
  *library = As<CUlibrary>(handle);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  if (fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint8_t> bytes;
  if (!ReadFile(fileName, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  bytes.resize(bytes.size() + 64);
  return emu::cuLibraryLoadData(library, bytes.data(), jitOptions, jitOptionsValues, numJitOptions,
                                libraryOptions, libraryOptionValues, numLibraryOptions);
}

CUresult cuLibraryUnload(CUlibrary library) {
  const auto object = TheDevice().libraries.Remove(Raw(library));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  object->Unload();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  std::shared_ptr<Library> object;
  if (const CUresult bad = FindLibrary(library, &object); bad != CUDA_SUCCESS) return bad;
  const int entry = object->code()->FindEntry(name);
  if (entry < 0) return CUDA_ERROR_NOT_FOUND;
  const CUresult refused = object->code()->Refused(static_cast<size_t>(entry));
  if (refused != CUDA_SUCCESS) return refused;
  *pKernel = As<CUkernel>(object->KernelOf(static_cast<size_t>(entry))->handle);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  std::shared_ptr<Library> object;
  if (const CUresult bad = FindLibrary(lib, &object); bad != CUDA_SUCCESS) return bad;
  *count = static_cast<unsigned>(object->code()->info().entries.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  std::shared_ptr<Library> object;
  if (const CUresult bad = FindLibrary(lib, &object); bad != CUDA_SUCCESS) return bad;
  const size_t count = object->code()->info().entries.size();
  CUresult refused = CUDA_SUCCESS;  // as in cuModuleEnumerateFunctions
  for (size_t i = 0; i < numKernels; ++i) {
    kernels[i] = i < count ? As<CUkernel>(object->KernelOf(i)->handle) : nullptr;
    if (i < count && refused == CUDA_SUCCESS) refused = object->code()->Refused(i);
  }
  return refused;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  std::shared_ptr<Module> module;
  const CUresult found = ModuleHere(library, &module);
  if (found == CUDA_SUCCESS) *pMod = As<CUmodule>(module->handle);
  return found;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  std::shared_ptr<Module> module;
  const CUresult found = ModuleHere(library, &module);
  if (found != CUDA_SUCCESS) return found;
  return emu::cuModuleGetGlobal_v2(dptr, bytes, As<CUmodule>(module->handle), name);
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  if (TheDevice().kernels.Find(Raw(kernel)) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Function> function;
  CUresult found = FindFunction(As<CUfunction>(Raw(kernel)), &function);
  if (found == CUDA_SUCCESS) found = function->module()->code()->Refused(function->entry);
  if (found == CUDA_SUCCESS) *pFunc = As<CUfunction>(function->handle);
  return found;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  std::shared_ptr<LibraryKernel> object;
  std::shared_ptr<Library> library;
  const CUresult found = FindKernel(kernel, &object, &library);
  if (found == CUDA_SUCCESS) *pLib = As<CUlibrary>(library->handle);
  return found;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<LibraryKernel> kernel;
  std::shared_ptr<Library> library;
  const CUresult found = FindKernel(hfunc, &kernel, &library);
  if (found == CUDA_SUCCESS) *name = library->code()->info().entries[kernel->entry].name.c_str();
  return found;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  std::shared_ptr<LibraryKernel> object;
  std::shared_ptr<Library> library;
  const CUresult found = FindKernel(kernel, &object, &library);
  if (found != CUDA_SUCCESS) return found;
  return ParamInfoOf(library->code()->info().entries[object->entry], paramIndex, paramOffset,
                     paramSize);
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice) {
  std::shared_ptr<LibraryKernel> object;
  std::shared_ptr<Library> library;
  const CUresult found = FindKernel(kernel, &object, &library);
  if (found != CUDA_SUCCESS) return found;
  return GetAttribute(library->code()->info().entries[object->entry], *object->state, attrib, pi);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice) {
  std::shared_ptr<LibraryKernel> object;
  std::shared_ptr<Library> library;
  const CUresult found = FindKernel(kernel, &object, &library);
  if (found != CUDA_SUCCESS) return found;
  return SetAttribute(library->code()->info().entries[object->entry], object->state.get(), attrib,
                      val);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice) {
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<LibraryKernel> object;
  std::shared_ptr<Library> library;
  return FindKernel(kernel, &object, &library);
}

}  // namespace rgpu::emu
