// Handlers: modules and libraries (load, unload, contents).
#include <algorithm>
#include <cstring>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/loads.h"

namespace rgpu::exec {

namespace {

using Place = Table<Code>::Reservation;

constexpr size_t kMaxNamesBytes = 60U << 10;  // the names travel in the head of one reply

// Keeps a log until the reply is sent: the handler's own memory is gone by then.
wire::ByteView KeepLog(wire::ByteView log) {
  thread_local std::string kept[2];
  thread_local int turn = 0;
  std::string& place = kept[turn ^= 1];
  place.assign(log.text());
  return wire::Bytes(place);
}

// The driver's functions for a module, and below for a library.
struct ModuleCalls {
  static CUresult Load(const Driver& driver, Code& code, JitOptions& options, const void* image) {
    return driver->cuModuleLoadDataEx(&code.module, image, options.count(), options.ids(),
                                      options.values());
  }
  static void Unload(const Driver& driver, const Code& code) {
    driver->cuModuleUnload(code.module);
  }
  static CUresult GetGlobal(const Driver& driver, const Code& code, CUdeviceptr* dptr,
                            size_t* bytes, const char* name) {
    return driver->cuModuleGetGlobal_v2(dptr, bytes, code.module, name);
  }
};

struct LibraryCalls {
  static CUresult Load(const Driver& driver, Code& code, JitOptions& options, const void* image) {
    const CUresult loaded =
        driver->cuLibraryLoadData(&code.library, image, options.ids(), options.values(),
                                  options.count(), nullptr, nullptr, 0);
    if (loaded != CUDA_SUCCESS) return loaded;
    // The driver places a library's data at its first use. Use it now, while memory is measured.
    CUmodule module = nullptr;
    const CUresult placed = driver->cuLibraryGetModule(&module, code.library);
    if (placed == CUDA_SUCCESS) {
      code.placed.insert(code.context->id);
    } else {
      driver->cuLibraryUnload(code.library);
    }
    return placed;
  }
  static void Unload(const Driver& driver, const Code& code) {
    driver->cuLibraryUnload(code.library);
  }
  static CUresult GetGlobal(const Driver& driver, const Code& code, CUdeviceptr* dptr,
                            size_t* bytes, const char* name) {
    return driver->cuLibraryGetGlobal(dptr, bytes, code.library, name);
  }
};

// Loads the image of a request, charges the lease for it and puts the logs into the reply.
template <typename Calls, typename Request, typename Reply>
CUresult LoadImage(Executor& executor, const Request& request, Reply* reply, Code* code) {
  std::shared_ptr<Image> image;
  CUresult result = TakeImage(executor, request.image, &image);
  if (result != CUDA_SUCCESS) return result == kDropped ? CUDA_ERROR_OUT_OF_MEMORY : result;
  JitOptions options;
  result = options.Read(request.options, request.info_log_bytes, request.error_log_bytes);
  if (result != CUDA_SUCCESS) return result;
  Charged charged;
  const Compiling compiling(executor, {});
  const Driver& driver = executor.driver();
  result = LoadCharged(
      executor, image->total,
      [&] { return Calls::Load(driver, *code, options, image->bytes.data()); },
      [&] { Calls::Unload(driver, *code); }, &charged);
  code->charged_bytes = charged.bytes;
  code->placed_bytes = charged.placed_bytes;
  reply->info_log = KeepLog(options.info_log());
  reply->error_log = KeepLog(options.error_log());
  return result;
}

// Forgets the functions and globals of `code`, and unloads it with its charge.
template <typename Calls>
void Unload(Executor& executor, const std::shared_ptr<Code>& code) {
  code->gone = true;
  const auto of_code = [&](const Function& function) { return function.code == code; };
  executor.objects().functions.EraseIf(of_code);
  executor.objects().kernels.EraseIf(of_code);
  executor.objects().ranges.EraseIf(
      [&](uint64_t, const Range& range) { return range.code == code.get(); });
  const Driver& driver = executor.driver();
  executor.reaper().Add(
      code->context, [&driver, code] { Calls::Unload(driver, *code); },
      [&executor, code] { executor.ledger().Release(code->charged_bytes); }, code->charged_bytes);
}

// Adds what was loaded without the executor's lock. If its context has gone meanwhile, the driver
// has unloaded a module, and the charge is released.
CUresult Keep(Executor& executor, CUresult result, std::shared_ptr<Code> code, Place& place) {
  if (result != CUDA_SUCCESS) return result;
  if (code->context->dead) {
    if (code->library != nullptr) executor.driver()->cuLibraryUnload(code->library);
    executor.ledger().Release(code->charged_bytes);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  place.Add(std::move(code));
  return CUDA_SUCCESS;
}

// Loads the code of a request as the object of `place`.
template <typename Calls, typename Request, typename Reply>
CUresult LoadCode(Executor& executor, const Command& command, Place& place, const Request& request,
                  Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  if (result == CUDA_SUCCESS) result = place.result();
  if (result != CUDA_SUCCESS) return result;
  auto code = std::make_shared<Code>();
  code->context = context;
  result = LoadImage<Calls>(executor, request, reply, code.get());
  return Keep(executor, result, std::move(code), place);
}

// Asks the driver for a global of `code`, puts its place into the reply, and lets commands use it.
template <typename Calls, typename Request, typename Reply>
CUresult GetGlobal(Executor& executor, const Context& context, const Code& code,
                   const Request& request, Reply* reply) {
  std::string name;
  if (!ToName(request.name, &name)) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr dptr = 0;
  size_t size = 0;
  const CUresult result = Calls::GetGlobal(executor.driver(), code, &dptr, &size, name.c_str());
  if (result != CUDA_SUCCESS) return result;
  reply->dptr = dptr;
  reply->size = size;
  Ranges& ranges = executor.objects().ranges;
  if (ranges.full()) return CUDA_ERROR_OUT_OF_MEMORY;
  return ranges.Add(dptr, {size, Range::Kind::kGlobal, context.id, nullptr, &code});
}

// A module obtained from a library goes with the library, and so do its globals.
void UnloadModulesOf(Executor& executor, const Code& library) {
  executor.objects().modules.EraseIf([&](const Code& module) {
    if (module.owned || module.library != library.library) return false;
    executor.objects().ranges.EraseIf(
        [&](uint64_t, const Range& range) { return range.code == &module; });
    return true;
  });
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuModuleLoad_Request& request,
             rgpuModuleLoad_Reply* reply) {
  Place place(executor.objects().modules, request.module);
  return LoadCode<ModuleCalls>(executor, command, place, request, reply);
}

CUresult Run(Executor& executor, const Command&, const rgpuModuleUnload_Request& request,
             rgpuModuleUnload_Reply*) {
  Code* found = nullptr;
  CUresult result = executor.objects().modules.Find(request.module, &found);
  if (result != CUDA_SUCCESS) return result;
  if (!found->owned) return CUDA_ERROR_NOT_PERMITTED;
  std::shared_ptr<Code> code;
  executor.objects().modules.Take(request.module, &code);
  Unload<ModuleCalls>(executor, code);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command, const rgpuLibraryLoad_Request& request,
             rgpuLibraryLoad_Reply* reply) {
  Place place(executor.objects().libraries, request.library);
  return LoadCode<LibraryCalls>(executor, command, place, request, reply);
}

CUresult Run(Executor& executor, const Command&, const rgpuLibraryUnload_Request& request,
             rgpuLibraryUnload_Reply*) {
  std::shared_ptr<Code> code;
  const CUresult result = executor.objects().libraries.Take(request.library, &code);
  if (result != CUDA_SUCCESS) return result;
  UnloadModulesOf(executor, *code);
  Unload<LibraryCalls>(executor, code);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuLibraryGetModule_Request& request, rgpuLibraryGetModule_Reply*) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  // Shared, because PlaceLibrary may release the lock.
  std::shared_ptr<Code> library;
  if (result == CUDA_SUCCESS) {
    result = executor.objects().libraries.Share(request.library, &library);
  }
  if (result != CUDA_SUCCESS) return result;
  Place place(executor.objects().modules, request.module);
  result = place.result();
  if (result == CUDA_SUCCESS) result = PlaceLibrary(executor, *context, *library);
  if (result != CUDA_SUCCESS) return result;
  auto code = std::make_shared<Code>();
  code->context = std::move(context);
  code->library = library->library;
  code->owned = false;
  result = executor.driver()->cuLibraryGetModule(&code->module, library->library);
  if (result == CUDA_SUCCESS) place.Add(std::move(code));
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuModuleGetGlobal_Request& request,
             rgpuModuleGetGlobal_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  Code* code = nullptr;
  if (result == CUDA_SUCCESS) result = executor.objects().modules.Find(request.module, &code);
  if (result != CUDA_SUCCESS) return result;
  return GetGlobal<ModuleCalls>(executor, *context, *code, request, reply);
}

CUresult Run(Executor& executor, const Command& command,
             const rgpuLibraryGetGlobal_Request& request, rgpuLibraryGetGlobal_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  std::shared_ptr<Code> code;  // shared, because PlaceLibrary may release the lock
  if (result == CUDA_SUCCESS) result = executor.objects().libraries.Share(request.library, &code);
  if (result == CUDA_SUCCESS) result = PlaceLibrary(executor, *context, *code);
  if (result != CUDA_SUCCESS) return result;
  return GetGlobal<LibraryCalls>(executor, *context, *code, request, reply);
}

namespace {

// Appends the names of all functions of a module, or kernels of a library, each with a zero byte.
template <class Function, class Owner, class Count, class List, class Name>
CUresult Names(const Executor& executor, Owner owner, Count get_count, List list, Name get_name,
               std::string* names) {
  if (list == nullptr || get_name == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned int count = 0;
  CUresult result = get_count(&count, owner);
  if (result != CUDA_SUCCESS) return result;
  std::vector<Function> functions(count);
  const CUresult listed = list(functions.data(), count, owner);
  // The emulated device also lists kernels that it refuses to run, and returns an error for them.
  // The list is complete nevertheless; the client gets the error when it asks for such a kernel.
  const bool whole = std::ranges::find(functions, nullptr) == functions.end();
  if (listed != CUDA_SUCCESS && !(executor.driver().emulated && whole)) result = listed;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    const char* name = "";
    result = get_name(&name, functions[i]);
    if (result == CUDA_SUCCESS) names->append(name).push_back('\0');
  }
  return result;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuFunctionNames_Request& request,
             rgpuFunctionNames_Reply* reply) {
  std::shared_ptr<Context> context;
  CUresult result = executor.Enter(command, &context);
  Code* code = nullptr;
  if (result == CUDA_SUCCESS) {
    result = request.module != 0 ? executor.objects().modules.Find(request.module, &code)
                                 : executor.objects().libraries.Find(request.library, &code);
  }
  if (result != CUDA_SUCCESS) return result;
  thread_local std::string names;
  names.clear();
  const Driver& driver = executor.driver();
  result =
      request.module != 0
          ? Names<CUfunction>(executor, code->module, driver->cuModuleGetFunctionCount,
                              driver->cuModuleEnumerateFunctions, driver->cuFuncGetName, &names)
          : Names<CUkernel>(executor, code->library, driver->cuLibraryGetKernelCount,
                            driver->cuLibraryEnumerateKernels, driver->cuKernelGetName, &names);
  if (result == CUDA_SUCCESS && names.size() > kMaxNamesBytes) return CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS) reply->names = wire::Bytes(names);
  return result;
}

}  // namespace rgpu::exec
