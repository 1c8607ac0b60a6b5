// Two ends of one connection, over each transport.
#pragma once

#include <memory>
#include <string>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::testing {

struct Pair {
  std::unique_ptr<transport::Connection> a;
  std::unique_ptr<transport::Connection> b;
};

// kind: "unix", "shm", "tcp" or "tls".  small_buffers: as small as the system lets them be.
Pair MakePair(const std::string& kind, bool small_buffers = false);

// A listening loopback socket; `uri` is where it is.
base::UniqueFd ListenTcp(int backlog, std::string* uri, bool ipv6 = false);

// Runs `test(kind)` for all.
template <typename Function>
void OverBoth(Function test) {
  for (const char* kind : {"unix", "shm", "tcp", "tls"}) test(std::string(kind));
}

// Sends everything, blocking.
void SendBytes(transport::Connection& connection, const void* data, size_t bytes);

// Receives exactly so much, blocking.
void ReceiveBytes(transport::Connection& connection, void* to, size_t bytes);

// Skips the test where bad addresses cannot be told from good ones, as under qemu-user.
void NeedsGuardedCopies();

// Two pages, of which the second cannot be accessed. A test that has it needs guarded copies.
class HalfMapped {
 public:
  HalfMapped();
  ~HalfMapped();
  HalfMapped(const HalfMapped&) = delete;
  HalfMapped& operator=(const HalfMapped&) = delete;
  uint8_t* data() const { return data_; }
  size_t page() const { return page_; }

 private:
  size_t page_;
  uint8_t* data_;
};

}  // namespace rgpu::testing
