#include "rgpu_server/executor/loads.h"

#include <algorithm>

#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

constexpr uint32_t kMaxParams = 4096;
constexpr int kAttributes = 16;
constexpr uint64_t kGranule = 512;

uint64_t FreeBytes(const Driver& driver) {
  size_t free = 0;
  size_t total = 0;
  return driver->cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? free : 0;
}

}  // namespace

CUresult LoadCharged(Executor& executor, uint64_t image_bytes,
                     const std::function<CUresult()>& load, const std::function<void()>& undo,
                     uint64_t* charged) {
  const Driver& driver = executor.driver();
  Ledger& ledger = executor.ledger();
  if (executor.Charge(image_bytes) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t others_before = ledger.own();
  const CUresult result = executor.Unlocked([&] {
    executor.role().Yield();
    const uint64_t free_before = FreeBytes(driver);
    const CUresult loaded = load();
    *charged = free_before - std::min(free_before, FreeBytes(driver));
    return loaded;
  });
  if (result != CUDA_SUCCESS) {
    ledger.Release(image_bytes);
    return result;
  }
  // What other threads allocated meanwhile is theirs.
  const uint64_t others = ledger.own() - std::min(ledger.own(), others_before);
  uint64_t exact = *charged - std::min(*charged, others);
  if (!driver.emulated) exact = std::max(exact, image_bytes);  // code is in device memory as well
  RoundUp(exact, kGranule, &exact);
  if (!ledger.Adjust(image_bytes, exact)) {
    executor.Unlocked([&] {
      undo();
      return 0;
    });
    ledger.Release(image_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *charged = exact;
  return CUDA_SUCCESS;
}

bool ToName(wire::ByteView bytes, std::string* name) {
  *name = std::string(bytes.text());
  return name->find('\0') == std::string::npos;
}

CUresult ReadFacts(Executor& executor, Function* function, FunctionFacts* facts) {
  const Driver& driver = executor.driver();
  const bool kernel = function->function == nullptr;
  if (kernel ? driver->cuKernelGetParamInfo == nullptr : driver->cuFuncGetParamInfo == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;  // the driver is older than 12.4
  }
  for (uint32_t i = 0; i < kMaxParams; ++i) {
    size_t offset = 0;
    size_t bytes = 0;
    const CUresult result =
        kernel ? driver->cuKernelGetParamInfo(function->kernel, i, &offset, &bytes)
               : driver->cuFuncGetParamInfo(function->function, i, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // past the last one
    if (result != CUDA_SUCCESS) return result;
    facts->params.push_back(static_cast<uint32_t>(offset));
    facts->params.push_back(static_cast<uint32_t>(bytes));
  }
  for (int id = 0; id < kAttributes; ++id) {
    int value = 0;
    const auto attribute = static_cast<CUfunction_attribute>(id);
    const CUresult result =
        kernel
            ? driver->cuKernelGetAttribute(&value, attribute, function->kernel, executor.device())
            : driver->cuFuncGetAttribute(&value, attribute, function->function);
    facts->attributes.push_back(result == CUDA_SUCCESS ? value : 0);
  }
  const int local = facts->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];
  function->local_bytes = static_cast<uint64_t>(std::max(local, 0));
  return CUDA_SUCCESS;
}

CUresult FindFunction(Executor& executor, uint64_t function, uint64_t kernel, Function** found) {
  return function != 0 ? executor.functions().Find(function, found)
                       : executor.kernels().Find(kernel, found);
}

}  // namespace rgpu::exec
