// The objects behind the client's handles.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rgpu_server/executor/exports.h"
#include "rgpu_server/executor/streams.h"
#include "rgpu_server/executor/table.h"

namespace rgpu::exec {

struct SharedEvent;

struct Event {
  uint32_t context = 0;
  unsigned int flags = 0;
  std::shared_ptr<Point> current;  // null: never recorded
  // Set once a graph uses the event: its driver event is part of the graph, so from then on all
  // records use this one.
  std::shared_ptr<Point> fixed;
  uint64_t version = 0;
  std::shared_ptr<SharedEvent> shared;  // not null: other processes see it; `current` is unused
};

// Gives the event its fixed driver event. The context is that of the event, and current.
CUresult FixEvent(Context& context, Event* event);

// A module or a library.
struct Code {
  std::shared_ptr<Context> context;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  uint64_t charged_bytes = 0;
  uint64_t placed_bytes = 0;  // what a library's data takes in each context
  std::set<uint32_t> placed;  // of a library: ids of the contexts that have its data
  bool owned = true;          // false: the module belongs to a library and goes with it
  bool gone = false;          // the client has unloaded it
};

// The prediction for a kernel that was never measured. It is longer than most kernels take, so that
// few unmeasured kernels go to the device at once: if they turn out to be long, they cannot be
// taken back.
inline constexpr double kFirstKernelNs = 2'500'000;

// A function or a kernel.
struct Function {
  uint32_t context = 0;
  std::shared_ptr<Code> code;
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  std::string name;          // for reports; very long names are cut
  uint64_t local_bytes = 0;  // per thread
  // What the driver answered when it was asked to load the code. None: it was not asked yet, or a
  // launch has reported that answer since and the next launch asks again.
  std::optional<CUresult> loaded;
  // Starts high enough that the first run is measured by itself.
  std::shared_ptr<Estimate> estimate = std::make_shared<Estimate>(kFirstKernelNs);

  CUfunction launchable() const {
    return function != nullptr ? function : reinterpret_cast<CUfunction>(kernel);
  }
};

// A memory pool. It belongs to the device, not to the context in which it was created.
struct Pool {
  CUmemoryPool handle = nullptr;
  uint64_t id = 0;
  uint64_t max_bytes = 0;  // maxSize, as the program asked for it; 0: none
  uint64_t charged_bytes = 0;
  uint64_t allocations = 0;  // of this pool in the table of ranges
  // By the client. The driver destroys the pool after its last allocation is freed.
  bool destroyed = false;
  // The number of the last free to the pool (MemoryAccount::CountFree) that perhaps is still
  // pending or has left memory in the pool. 0: none.
  uint64_t freed = 0;
  bool gone = false;  // the driver has destroyed it
};

// A CUDA array, or a level or plane of one, which the driver frees with the one that has it.
struct Array {
  uint32_t context = 0;
  CUarray handle = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  uint64_t charged_bytes = 0;
  bool whole = true;
  std::vector<uint64_t> parts;  // ids of its planes
  bool in_graphs = false;       // an executable graph has named it
  bool gone = false;            // destroyed; a graph that names it cannot be launched
};

struct MipmappedArray {
  uint32_t context = 0;
  CUmipmappedArray handle = nullptr;
  uint64_t charged_bytes = 0;
  std::vector<uint64_t> parts;  // ids of its levels
};

// A texture or surface object. Its id is the driver's value, which kernels read.
struct Texture {
  uint32_t context = 0;
};

// An image that the client is sending. One zero byte follows the announced bytes, so that text is
// terminated.
struct Image {
  std::vector<uint8_t> bytes;
  uint64_t total = 0;
  uint64_t received = 0;
};

// Device memory that the session's commands may name.
struct Range {
  // kMapped: addresses that cuMemMap gave memory and cuMemSetAccess made accessible. Those that
  // adjoin each other count as one range. kImported: memory of another session of the lease.
  enum class Kind : uint8_t { kPlain, kPool, kGlobal, kMapped, kImported };
  uint64_t bytes = 0;
  Kind kind = Kind::kPlain;
  uint32_t context = 0;
  std::shared_ptr<Pool> pool = nullptr;
  const Code* code = nullptr;  // for a global; compared, never dereferenced
  bool backed = false;         // a plain one that the client placed (memory_credit.h)
  // Of the process. Set by Ranges::Add, never used again.
  uint64_t serial = 0;
  // Another process may have it: the client's view of the device's memory does not show it.
  bool exported = false;
  Import import{};  // for kImported

  // By cuMemFree and cuMemFreeAsync.
  bool may_be_freed() const { return kind == Kind::kPlain || kind == Kind::kPool; }
};

// Ordered by base; ranges do not overlap.
class Ranges {
 public:
  CUresult Add(uint64_t base, Range range);
  // CUDA_ERROR_INVALID_VALUE unless [address, address + bytes) lies within one range.
  CUresult Check(uint64_t address, uint64_t bytes) const;
  // The same for `height` rows of `width` bytes, `pitch` apart.
  CUresult CheckRows(uint64_t address, uint64_t pitch, uint64_t width, uint64_t height) const;
  Range* Find(uint64_t base);
  // Copies the range that contains `address`, and its base. False: there is none.
  bool At(uint64_t address, uint64_t* base, Range* range) const;
  bool Take(uint64_t base, Range* range);
  // `predicate(base, range)`
  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    g_handles -= std::erase_if(
        ranges_, [&](const auto& entry) { return predicate(entry.first, entry.second); });
  }
  // True if the session has as many handles and ranges as it may have.
  static bool full() { return g_handles >= kMaxHandles; }

 private:
  std::map<uint64_t, Range> ranges_;
  uint64_t last_serial_ = 0;
};

}  // namespace rgpu::exec
