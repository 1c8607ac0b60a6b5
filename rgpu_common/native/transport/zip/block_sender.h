// The sending half: cuts a stream into blocks and compresses those where it pays.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/transport/zip/block.h"
#include "rgpu_common/native/transport/zip/decide.h"
#include "rgpu_common/native/transport/zip/zstd.h"

namespace rgpu::transport::zip {

// What compressed blocks came to, over all links of a session.
struct Savings {
  std::atomic<uint64_t> sent_plain{0};
  std::atomic<uint64_t> sent_packed{0};
  std::atomic<uint64_t> received_plain{0};
  std::atomic<uint64_t> received_packed{0};
};

// Nanoseconds of some monotonic clock.
using Clock = uint64_t (*)();

// The parts that a caller offers, but for what of them has gone.
class Offer {
 public:
  // More parts are not looked at.
  static constexpr int kParts = 128;

  Offer(const iovec* parts, int count);
  size_t left() const { return left_; }
  void Skip(size_t bytes);
  // The first `bytes` (<= left), as at most kParts parts.
  int Gather(size_t bytes, iovec* to) const;
  // Copies them.  False: memory that cannot be read is among them.
  bool Copy(size_t bytes, uint8_t* to) const;

 private:
  const iovec* parts_;
  int count_;
  size_t skip_ = 0;  // of the first part
  size_t left_ = 0;
};

// One thread at a time.
class BlockSender {
 public:
  BlockSender(const Api& api, Connection* link, Savings* savings, Clock clock)
      : link_(link), savings_(savings), clock_(clock), packer_(api) {}

  // As Connection::TrySend.  What was begun stays begun: whoever is told that bytes have not gone
  // offers them again, perhaps in other pieces.
  IoResult TrySend(const iovec* parts, int count);

 private:
  bool begun() const { return header_left_ > 0 || raw_left_ > 0 || packed_left() > 0; }
  size_t packed_left() const { return packed_end_ - packed_begin_; }
  void Begin(const Offer& offer);
  void BeginRaw(size_t bytes);
  bool BeginPacked(const Offer& offer, size_t bytes);
  void TakeSample(const Offer& offer);
  bool Collect(const Offer& offer, size_t bytes);
  // One TrySend of the link.
  IoResult SendRaw(Offer* offer, size_t* told);
  IoResult SendPacked();

  Connection* const link_;
  Savings* const savings_;
  const Clock clock_;
  Packer packer_;
  Decision decision_;
  BlockHeader header_;
  size_t header_left_ = 0;
  size_t raw_left_ = 0;               // of a block that is not packed
  std::unique_ptr<uint8_t[]> plain_;  // what is to be compressed
  std::unique_ptr<uint8_t[]> packed_;
  size_t packed_begin_ = 0;
  size_t packed_end_ = 0;
  size_t packed_plain_ = 0;  // what the packed block is of
  size_t ahead_ = 0;         // bytes that have gone although the caller was told that they have not
};

}  // namespace rgpu::transport::zip
