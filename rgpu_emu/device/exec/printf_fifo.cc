#include "rgpu_emu/device/exec/printf_fifo.h"

namespace rgpu::emu {

void PrintfFifo::Push(std::string_view record) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (record.size() > capacity_) return;
  while (used_ + record.size() > capacity_ && !records_.empty()) {
    used_ -= records_.front().size();
    records_.pop_front();
  }
  used_ += record.size();
  records_.emplace_back(record);
}

void PrintfFifo::Flush(DeviceServices* sink) {
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
  if (sink != nullptr) sink->Print(text);
}

void PrintfFifo::SetCapacity(uint64_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  capacity_ = capacity;
}

}  // namespace rgpu::emu
