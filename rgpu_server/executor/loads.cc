#include "rgpu_server/executor/loads.h"

#include <algorithm>
#include <array>

#include "gen/notices.gen.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/notice.h"
#include "rgpu_server/executor/round.h"

namespace rgpu::exec {

namespace {

constexpr uint32_t kMaxParams = 4096;
constexpr int kAttributes = 16;
constexpr uint64_t kGranule = 4096;

// Bytes that the device has free, and bytes that pools hold, which they may give back at any time.
// `pools_first` gives the order of the two readings: a change between them may make the measured
// use of a load too large, but never too small.
struct Held {
  uint64_t free = 0;
  uint64_t pools = 0;
};

Held Look(Executor& executor, bool pools_first) {
  const Driver& driver = executor.driver();
  Held held;
  const auto look_at_pools = [&] {
    executor.objects().pools.ForEach([&](const std::shared_ptr<Pool>& pool) {
      cuuint64_t bytes = 0;
      driver->cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
      held.pools += bytes;
    });
  };
  size_t free = 0;
  size_t total = 0;
  if (pools_first) look_at_pools();
  if (driver->cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS) held.free = free;
  if (!pools_first) look_at_pools();
  return held;
}

// Runs `load` while no other thread of this process allocates or frees device memory. Sets `*taken`
// to what the load took.
CUresult LoadMeasured(Executor& executor, const std::function<CUresult()>& load, uint64_t* taken) {
  const MemoryAccount::Measure measure(executor.memory());
  const Held before = Look(executor, true);
  const CUresult result = executor.Unlocked([&] {
    executor.role().Yield();
    return load();
  });
  const Held after = Look(executor, false);
  const uint64_t had = before.free + before.pools;
  *taken = had - std::min(had, after.free + after.pools);
  return result;
}

}  // namespace

Compiling::Compiling(Executor& executor, std::string_view name)
    : executor_(executor), name_(name), start_ns_(base::NowNs()) {
  executor_.ledger().BeginCompiling();
}

Compiling::~Compiling() {
  executor_.ledger().EndCompiling();
  if (!executor_.tells_compiled()) return;
  const wire::FrameHeader header = NoticeHeader(wire::Notice::kCompiled);
  transport::FrameBuffer& notices = executor_.notices(0);
  wire::Writer writer = notices.Begin(header);
  Put(writer, wire::Compiled{base::NowNs() - start_ns_, wire::Bytes(name_)});
  notices.End();
}

CUresult LoadCharged(Executor& executor, uint64_t image_bytes,
                     const std::function<CUresult()>& load, const std::function<void()>& undo,
                     Charged* charged) {
  Ledger& ledger = executor.ledger();
  uint64_t bound = 0;
  if (!RoundUp(image_bytes, kGranule, &bound)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (bool again : {true, false}) {
    if (executor.memory().Charge(bound) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t taken = 0;
    const CUresult result = LoadMeasured(executor, load, &taken);
    if (result != CUDA_SUCCESS) {
      ledger.Release(bound);
      if (result == CUDA_ERROR_OUT_OF_MEMORY && !again) executor.memory().DeviceIsFull(bound);
      if (result != CUDA_ERROR_OUT_OF_MEMORY || !again) return result;
      executor.reaper().WaitAll();
      executor.memory().ReconcilePools();
      continue;
    }
    // The code lies in device memory or, with the emulated device, in host memory.
    uint64_t exact =
        executor.driver().emulated ? image_bytes + taken : std::max(image_bytes, taken);
    RoundUp(exact, kGranule, &exact);
    if (exact <= bound || ledger.TryCharge(exact - bound)) {
      if (exact < bound) ledger.Release(bound - exact);
      *charged = {exact, taken};
      return CUDA_SUCCESS;
    }
    executor.Unlocked([&] {
      undo();
      return 0;
    });
    ledger.Release(bound);
    bound = exact;  // now known; charged first in the second round
  }
  ledger.CountRefused();
  executor.memory().LeaseIsFull(bound);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult PlaceLibrary(Executor& executor, const Context& context, Code& library) {
  if (library.library == nullptr || !library.owned) return CUDA_SUCCESS;
  if (!library.placed.insert(context.id).second) return CUDA_SUCCESS;
  const CUresult result = executor.memory().ChargeNow(library.placed_bytes);
  if (result == CUDA_SUCCESS) {
    library.charged_bytes += library.placed_bytes;
  } else {
    library.placed.erase(context.id);
  }
  return result;
}

bool ToName(wire::ByteView bytes, std::string* name) {
  *name = std::string(bytes.text());
  return name->find('\0') == std::string::npos;
}

std::string ShortName(const std::string& name) {
  constexpr size_t kMost = 255;
  return name.substr(0, kMost);
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
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // after the last parameter
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
  if (driver.required_block != nullptr) {
    std::array<uint32_t, 3> block{};
    driver.required_block(
        kernel ? reinterpret_cast<CUfunction>(function->kernel) : function->function, block.data());
    facts->attributes.insert(facts->attributes.end(), block.begin(), block.end());
  }
  const int local = facts->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];
  function->local_bytes = static_cast<uint64_t>(std::max(local, 0));
  return CUDA_SUCCESS;
}

CUresult FindFunction(Executor& executor, uint64_t function, uint64_t kernel, Function** found) {
  return function != 0 ? executor.objects().functions.Find(function, found)
                       : executor.objects().kernels.Find(kernel, found);
}

}  // namespace rgpu::exec
