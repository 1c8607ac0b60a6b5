// Images, driver options and logs, which loads and links share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_server/executor/objects.h"

namespace rgpu::exec {

class Executor;

// Takes the image out of the table. Fails unless the image is complete and its header does not
// claim more bytes than it has.
CUresult TakeImage(Executor& executor, uint64_t id, std::shared_ptr<Image>* image);

// Options for the driver, read from the wire's form (n x {i32, u64}), with log buffers of our own.
class JitOptions {
 public:
  static constexpr uint32_t kMaxLogBytes = 30U << 10;  // both logs fit into the head of one reply

  // Returns CUDA_ERROR_NOT_SUPPORTED for an option whose value is an address.
  CUresult Read(wire::ByteView options, uint32_t info_log_bytes, uint32_t error_log_bytes);
  unsigned int count() const { return static_cast<unsigned int>(ids_.size()); }
  CUjit_option* ids() { return ids_.data(); }
  void** values() { return values_.data(); }
  // What the driver wrote into the logs; valid as long as this object.
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
  size_t info_size_ = 0;  // index of the log's size in values_
  size_t error_size_ = 0;
};

// The driver writes into the logs of `options` until the link is destroyed.
struct Link {
  std::shared_ptr<Context> context;
  CUlinkState state = nullptr;
  JitOptions options;
  // Inputs and output, which the driver keeps; they count towards kMaxImageBytes.
  uint64_t held_bytes = 0;
  bool busy = false;  // a thread works with it in the driver, without the executor's lock
};

}  // namespace rgpu::exec
