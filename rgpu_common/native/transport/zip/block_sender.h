// The sending half of a compressed link: cuts a stream into blocks, and compresses a block if that
// pays.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/transport/zip/block.h"
#include "rgpu_common/native/transport/zip/decide.h"
#include "rgpu_common/native/transport/zip/zstd.h"

namespace rgpu::transport::zip {

inline constexpr auto kRelaxed = std::memory_order_relaxed;

// The bytes of all compressed blocks on all links of a session, before and after compression.
struct Savings {
  std::atomic<uint64_t> sent_plain{0};
  std::atomic<uint64_t> sent_packed{0};
  std::atomic<uint64_t> received_plain{0};
  std::atomic<uint64_t> received_packed{0};
};

// A monotonic clock, in nanoseconds.
using Clock = uint64_t (*)();

// The bytes that a caller offers to send, without those that have been sent already.
class Offer {
 public:
  // The most parts of one offer. Further parts are ignored.
  static constexpr int kParts = 128;

  Offer(const iovec* parts, int count);
  size_t left() const { return left_; }
  void Skip(size_t bytes);
  // Sets `to` to the first `bytes` (<= left), in at most kParts parts. Returns the number of parts.
  int Gather(size_t bytes, iovec* to) const;
  // Copies the first `bytes`. False: some of them cannot be read.
  bool Copy(size_t bytes, uint8_t* to) const;

 private:
  const iovec* parts_;
  int count_;
  size_t skip_ = 0;  // of the first part
  size_t left_ = 0;
};

// One thread at a time may use it.
class BlockSender {
 public:
  BlockSender(const Api& api, Connection* link, Savings* savings, Clock clock)
      : link_(link), savings_(savings), clock_(clock), packer_(api) {}

  // Like Connection::TrySend. A block that was begun is completed with the next calls: the caller
  // must offer the bytes that were not taken again, but may cut them into other pieces.
  IoResult TrySend(const iovec* parts, int count);

 private:
  bool begun() const { return header_left_ > 0 || raw_left_ > 0 || packed_left() > 0; }
  size_t packed_left() const { return packed_end_ - packed_begin_; }
  void Begin(const Offer& offer);
  void BeginRaw(size_t bytes);
  bool BeginPacked(const Offer& offer, size_t bytes);
  void TakeSample(const Offer& offer);
  bool Collect(const Offer& offer, size_t bytes);
  // Each makes one TrySend on the link.
  IoResult SendRaw(Offer* offer, size_t* told);
  IoResult SendPacked();

  Connection* const link_;
  Savings* const savings_;
  const Clock clock_;
  Packer packer_;
  Decision decision_;
  BlockHeader header_;
  size_t header_left_ = 0;
  size_t raw_left_ = 0;               // bytes left of a raw block
  std::unique_ptr<uint8_t[]> plain_;  // the bytes to compress
  std::unique_ptr<uint8_t[]> packed_;
  size_t packed_begin_ = 0;
  size_t packed_end_ = 0;
  size_t packed_plain_ = 0;  // number of stream bytes in the packed block
  size_t ahead_ = 0;         // bytes that were sent, but not yet reported to the caller as sent
};

}  // namespace rgpu::transport::zip
