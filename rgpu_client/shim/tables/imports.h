// Memory of other processes that this process has opened (cuIpcOpenMemHandle), and how often.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace rgpu::shim {

class Imports {
 public:
  // Held by each call, while it sends its command too. The functions below are called with it.
  std::mutex& calls() { return calls_; }

  // Counts one more use of memory that the context has opened with the same token, and returns its
  // base. 0: it has not opened it.
  uint64_t Again(const std::string& token, uint32_t context);
  void Add(uint64_t base, const std::string& token, uint32_t context);
  // Counts one use less. True: that was the last one.
  bool Drop(uint64_t base);
  // The context is gone, and with it what it had opened.
  void DropContext(uint32_t context);

 private:
  struct Import {
    std::string token;
    uint32_t context = 0;
    uint64_t uses = 1;
  };

  std::mutex calls_;
  std::map<uint64_t, Import> by_base_;
};

}  // namespace rgpu::shim
