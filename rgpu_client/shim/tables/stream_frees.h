// Frees in stream order (cuMemFreeAsync) that no wait of the program may have covered yet.
//
// Pools give memory back to the lease when the program waits, as NVIDIA's driver does at a
// synchronization, and the worker does so when a wait reaches it. So while there are such frees
// each wait is sent, also one for work that the client knows to be complete.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace rgpu::shim {

struct Stream;

class StreamFrees {
 public:
  bool any() const { return count_.load() != 0; }

  // Command `seq` frees memory in the stream.
  void Add(const Stream& stream, uint64_t seq);
  // A wait that the worker has answered covered what was posted up to `seq`: to the stream that has
  // this name on the wire, or to every stream of the context.
  void Cover(uint32_t context, uint64_t wire, uint32_t thread, uint64_t seq);
  void CoverContext(uint32_t context, uint64_t seq);
  // The stream is about to go, and another may get its name. From then on only a wait for the
  // context covers its frees.
  void StreamGoes(uint64_t wire, uint32_t thread);

 private:
  struct Place {
    uint32_t context = 0;
    uint64_t wire = 0;  // 0: of streams that are gone
    uint32_t thread = 0;
    auto operator<=>(const Place&) const = default;
  };

  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::map<Place, uint64_t> last_;  // the last free in each stream
};

}  // namespace rgpu::shim
