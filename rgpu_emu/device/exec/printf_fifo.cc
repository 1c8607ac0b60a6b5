#include "rgpu_emu/device/exec/printf_fifo.h"

namespace rgpu::emu {
namespace {

// Includes the record's place in the queue, because many short records use more than their bytes.
uint64_t Taken(std::string_view record) { return sizeof(std::string) + record.size(); }

}  // namespace

void PrintfFifo::Push(std::string_view record) {
  if (record.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t taken = Taken(record);
  if (taken > capacity_) return;
  while (used_ + taken > capacity_ && !records_.empty()) {
    used_ -= Taken(records_.front());
    records_.pop_front();
  }
  used_ += taken;
  records_.emplace_back(record);
}

void PrintfFifo::Flush(const std::function<void(std::string_view)>& sink) {
  std::lock_guard<std::mutex> order(flush_mutex_);
  std::string text;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (records_.empty()) return;
    text.reserve(used_);
    for (const std::string& record : records_) text += record;
    records_.clear();
    used_ = 0;
  }
  sink(text);
}

void PrintfFifo::SetCapacity(uint64_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  capacity_ = capacity;
}

}  // namespace rgpu::emu
