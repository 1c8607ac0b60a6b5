#include "rgpu_emu/device/graph_memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "rgpu_common/native/graph/make_params.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/memory.h"

namespace rgpu::emu {
namespace {

std::atomic<uint64_t> reserved{0};
std::atomic<uint64_t> reserved_high{0};

void Raise(std::atomic<uint64_t>* mark, uint64_t value) {
  uint64_t before = mark->load();
  while (before < value && !mark->compare_exchange_weak(before, value)) {
  }
}

class NodeMemory : public graph::Allocation {
 public:
  NodeMemory(std::shared_ptr<Context> context, AllocationRef memory)
      : context_(std::move(context)), memory_(std::move(memory)) {
    address = memory_->base;
    bytes = memory_->bytes;
    Raise(&reserved_high, reserved.fetch_add(bytes) + bytes);
  }
  ~NodeMemory() override {
    reserved.fetch_sub(bytes);
    // The memory may be gone with its context.
    Device& device = TheDevice();
    if (device.arena.Hide(memory_)) device.limbo.Retire(memory_, context_->Pending());
    device.limbo.Reap();
  }
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

 private:
  const std::shared_ptr<Context> context_;
  const AllocationRef memory_;
};

// The values of a context, cut from pages of its own.
class Values {
 public:
  uint64_t Take(uint64_t context) {
    const std::lock_guard lock(mutex_);
    Free& free = free_[context];
    if (!free.given_back.empty()) {
      const uint64_t address = free.given_back.back();
      free.given_back.pop_back();
      return address;
    }
    if (free.next == free.end) {
      const AllocationRef page = AllocateHard(kPageBytes, context, MemoryKind::kGraph);
      if (page == nullptr) return 0;
      free.next = page->base;
      free.end = page->base + kPageBytes;
    }
    const uint64_t address = free.next;
    free.next += sizeof(uint64_t);
    return address;
  }
  void Give(uint64_t context, uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto free = free_.find(context);
    if (free != free_.end()) free->second.given_back.push_back(address);
  }
  void Forget(uint64_t context) {
    const std::lock_guard lock(mutex_);
    free_.erase(context);
  }

 private:
  struct Free {
    uint64_t next = 0;
    uint64_t end = 0;
    std::vector<uint64_t> given_back;
  };
  std::mutex mutex_;
  std::map<uint64_t, Free> free_;  // by context
};

Values& TheValues() {
  static auto* values = new Values;
  return *values;
}

struct Access {
  uint32_t* word;
  uint32_t value;
};

void Load(void* argument) {
  auto* access = static_cast<Access*>(argument);
  access->value = __atomic_load_n(access->word, __ATOMIC_SEQ_CST);
}

void Store(void* argument) {
  const auto* access = static_cast<const Access*>(argument);
  __atomic_store_n(access->word, access->value, __ATOMIC_SEQ_CST);
}

bool IsCaptureMemory(const CUmemAccessDesc& access) {
  return access.location.type == CU_MEM_LOCATION_TYPE_DEVICE && access.location.id == 0;
}

}  // namespace

CUresult AllocateForGraph(const graph::AllocParams& params,
                          std::shared_ptr<graph::Allocation>* out) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (params.props.location.id != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!std::all_of(params.access.begin(), params.access.end(), IsCaptureMemory))
    return CUDA_ERROR_INVALID_VALUE;
  AllocationRef memory = AllocateHard(params.bytes, context->handle, MemoryKind::kGraph);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = std::make_shared<NodeMemory>(std::move(context), std::move(memory));
  return CUDA_SUCCESS;
}

CUresult NewConditional(graph::ConditionalHandle* handle) {
  const uint64_t context = Raw(handle->context);
  const uint64_t address = TheValues().Take(context);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  handle->value = address;
  handle->keep = std::shared_ptr<void>(
      nullptr, [context, address](void*) { TheValues().Give(context, address); });
  return CUDA_SUCCESS;
}

void ForgetConditionals(const Context& context) { TheValues().Forget(context.handle); }

CUresult ReadConditional(CUgraphConditionalHandle handle, uint32_t* value) {
  Access access{reinterpret_cast<uint32_t*>(handle), 0};
  Fault fault;
  if (!RunGuarded(&Load, &access, &fault)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  *value = access.value;
  return CUDA_SUCCESS;
}

CUresult WriteConditional(CUgraphConditionalHandle handle, uint32_t value) {
  Access access{reinterpret_cast<uint32_t*>(handle), value};
  Fault fault;
  return RunGuarded(&Store, &access, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool CaptureAllocation(const Stream& stream, size_t bytes, CUdeviceptr* address, CUresult* result) {
  CUdeviceptr made = 0;
  const bool captured = Capture(stream, result, [&](graph::Params* params) {
    CUDA_MEM_ALLOC_NODE_PARAMS node{};
    node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    node.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    node.bytesize = bytes;
    const CUresult allocated = graph::MakeAlloc(Graphs().host, node, params);
    if (allocated == CUDA_SUCCESS) made = std::get<graph::AllocParams>(*params).allocation->address;
    return allocated;
  });
  if (captured && *result == CUDA_SUCCESS) *address = made;
  return captured;
}

bool CaptureFree(const Stream& stream, CUdeviceptr address, CUresult* result) {
  return Capture(stream, result, [&](graph::Params* params) {
    if (!graph::IsGraphMemory(Graphs(), address)) return CUDA_ERROR_INVALID_VALUE;
    *params = graph::FreeParams{address};
    return CUDA_SUCCESS;
  });
}

// Nothing is kept for later: memory goes with its graphs.
CUresult cuDeviceGraphMemTrim(CUdevice) { return CUDA_SUCCESS; }

CUresult cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute attr, void* value) {
  graph::Model& graphs = Graphs();
  const graph::Locked locked(graphs);
  const graph::Memory::Use used = graphs.memory.used(0);
  const uint64_t values[] = {used.now, used.high, reserved.load(), reserved_high.load()};
  *static_cast<cuuint64_t*>(value) = values[attr];
  return CUDA_SUCCESS;
}

// A high-water mark can only be reset, by the value 0.
CUresult cuDeviceSetGraphMemAttribute(CUdevice, CUgraphMem_attribute attr, void* value) {
  if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  graph::Model& graphs = Graphs();
  const graph::Locked locked(graphs);
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    graphs.memory.ResetHigh(0);
  } else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    reserved_high.store(reserved.load());
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
