// The memory of a pair of rings: a memfd. The server makes and seals it; the client checks and maps
// it.
#pragma once

#include <string>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/shm/ring.h"

namespace rgpu::transport {

// The size of one ring. A larger ring falls out of a core's cache, which costs more than waiting
// for room.
inline constexpr size_t kRingBytes = 2U << 20;
inline constexpr size_t kLeastRingBytes = 4096;
inline constexpr size_t kMostRingBytes = 64U << 20;

// A mapped segment. Forked children do not inherit the mapping.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  // Makes a new segment. Seals keep either end from shrinking the file, which would crash the other
  // end. False: `*error` is an errno.
  static bool Make(size_t ring_bytes, Segment* segment, base::UniqueFd* fd, int* error);
  // Maps the file that the server sent. False: `*why` says what is wrong with it.
  static bool Map(const base::UniqueFd& fd, Segment* segment, std::string* why);

  bool mapped() const { return base_ != nullptr; }
  size_t ring_bytes() const { return ring_bytes_; }
  RingControl* control(int ring) const;
  uint8_t* data(int ring) const;
  // In a forked child, where another mapping may lie at these addresses: forgets the mapping
  // without unmapping it.
  void Forget() { base_ = nullptr; }

 private:
  bool MapFd(int fd, size_t ring_bytes, int* error);

  uint8_t* base_ = nullptr;
  size_t ring_bytes_ = 0;
};

}  // namespace rgpu::transport
