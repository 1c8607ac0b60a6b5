// What loads and links share: images, options, logs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

class Executor;

// The image, whole and no longer than its header says; it is the caller's and the id is gone.
CUresult TakeImage(Executor& executor, uint64_t id, std::shared_ptr<Image>* image);

// Options for the driver from the wire's (n x {i32, u64}), with log buffers of our own.
class JitOptions {
 public:
  static constexpr uint32_t kMaxLogBytes = 30U << 10;  // two logs fit the head of a reply

  // CUDA_ERROR_NOT_SUPPORTED: an option that holds an address.
  CUresult Read(wire::ByteView options, uint32_t info_log_bytes, uint32_t error_log_bytes);
  unsigned int count() const { return static_cast<unsigned int>(ids_.size()); }
  CUjit_option* ids() { return ids_.data(); }
  void** values() { return values_.data(); }
  // What the driver wrote; valid as long as this object.
  wire::ByteView info_log() const { return Log(info_log_, info_size_); }
  wire::ByteView error_log() const { return Log(error_log_, error_size_); }

 private:
  void Add(CUjit_option option, uint64_t value);
  void AddLog(CUjit_option buffer, CUjit_option size, uint32_t bytes, std::vector<char>* log,
              size_t* size_index);
  wire::ByteView Log(const std::vector<char>& log, size_t size_index) const;

  std::vector<CUjit_option> ids_;
  std::vector<void*> values_;
  std::vector<char> info_log_;
  std::vector<char> error_log_;
  size_t info_size_ = 0;  // place of the log's size among the values
  size_t error_size_ = 0;
};

// The driver writes into the options' logs until the link is destroyed.
struct Link {
  std::shared_ptr<Context> context;
  CUlinkState state = nullptr;
  JitOptions options;
  uint64_t held_bytes = 0;  // inputs and output: the driver keeps them, and they count as images
};

}  // namespace rgpu::exec
