// The bounded buffer between printf (or assert) in kernels and the device's Print.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace rgpu::emu {

class PrintfFifo {
 public:
  explicit PrintfFifo(uint64_t capacity) : capacity_(capacity) {}

  // Adds a record. If the buffer is full, drops the oldest records, as a GPU does.
  void Push(std::string_view record);
  // Passes all records to `sink`, oldest first.
  void Flush(const std::function<void(std::string_view)>& sink);
  void SetCapacity(uint64_t capacity);

 private:
  std::mutex mutex_;
  std::mutex flush_mutex_;  // keeps the order when two grids end at the same time
  uint64_t capacity_;
  uint64_t used_ = 0;
  std::deque<std::string> records_;
};

}  // namespace rgpu::emu
