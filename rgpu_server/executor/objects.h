// What the client's handles stand for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rgpu_server/executor/streams.h"
#include "rgpu_server/executor/table.h"

namespace rgpu::exec {

struct Event {
  uint32_t context = 0;
  unsigned int flags = 0;
  std::shared_ptr<Point> current;  // null: never recorded
  uint64_t version = 0;
};

// A module or a library.
struct Code {
  std::shared_ptr<Context> context;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  uint64_t charged_bytes = 0;
  uint64_t placed_bytes = 0;  // what the data of a library takes in each context
  std::set<uint32_t> placed;  // a library: contexts that have it
  bool owned = true;          // false: a library's module, which goes with the library
};

// Of a kernel that was never measured.  More than most take, so that few of them go to the device
// before one is: a queue of kernels that turn out to be long could not be taken back.
inline constexpr double kFirstKernelNs = 2'500'000;

// A function or a kernel.
struct Function {
  uint32_t context = 0;
  std::shared_ptr<Code> code;
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  std::string name;          // for reports, and cut where it is very long
  uint64_t local_bytes = 0;  // per thread
  // What the driver answered when it was to load the code.  None: it has not been asked, or a
  // launch has failed with its answer since.
  std::optional<CUresult> loaded;
  // Before it has run: long enough that it is measured by itself.
  std::shared_ptr<Estimate> estimate = std::make_shared<Estimate>(kFirstKernelNs);

  CUfunction launchable() const {
    return function != nullptr ? function : reinterpret_cast<CUfunction>(kernel);
  }
};

// The device's, whatever context it was made in.
struct Pool {
  CUmemoryPool handle = nullptr;
  uint64_t id = 0;
  uint64_t charged_bytes = 0;
  uint64_t allocations = 0;  // in the table of ranges
  bool destroyed = false;    // by the client: goes with its last allocation
  bool freed = false;        // memory was freed to it in a stream, and may be waited for
  bool gone = false;         // the driver has destroyed it
};

// An image on its way.  One byte longer than told and zeroed, so that text has an end.
struct Image {
  std::vector<uint8_t> bytes;
  uint64_t total = 0;
  uint64_t received = 0;
};

// Device memory that the session may name.
struct Range {
  enum class Kind : uint8_t { kPlain, kPool, kGlobal };
  uint64_t bytes = 0;
  Kind kind = Kind::kPlain;
  uint32_t context = 0;
  std::shared_ptr<Pool> pool = nullptr;
  const Code* code = nullptr;  // of a global; compared, never followed
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
  bool Take(uint64_t base, Range* range);
  // `predicate(base, range)`
  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    g_handles -= std::erase_if(
        ranges_, [&](const auto& entry) { return predicate(entry.first, entry.second); });
  }
  // One more would be one too many.
  static bool full() { return g_handles >= kMaxHandles; }

 private:
  std::map<uint64_t, Range> ranges_;
};

}  // namespace rgpu::exec
