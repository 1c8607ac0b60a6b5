// What the client's handles stand for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rgpu_server/executor/streams.h"

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
  bool owned = true;  // false: a library's module, which goes with the library
};

// A function or a kernel.
struct Function {
  uint32_t context = 0;
  std::shared_ptr<Code> code;
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  uint64_t local_bytes = 0;  // per thread

  CUfunction launchable() const {
    return function != nullptr ? function : reinterpret_cast<CUfunction>(kernel);
  }
};

struct Pool {
  std::shared_ptr<Context> context;
  CUmemoryPool handle = nullptr;
  uint64_t charged_bytes = 0;
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
  uint64_t charged_bytes = 0;
  Kind kind = Kind::kPlain;
  uint32_t context = 0;
  std::shared_ptr<Pool> pool;
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
  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    std::erase_if(ranges_, [&](const auto& entry) { return predicate(entry.second); });
  }

 private:
  std::map<uint64_t, Range> ranges_;
};

}  // namespace rgpu::exec
