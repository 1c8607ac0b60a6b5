#include "rgpu_common/native/transport/zip/block_sender.h"

#include <algorithm>
#include <cstring>

#include "rgpu_common/native/base/probe.h"

namespace rgpu::transport::zip {
namespace {

// A part of this size or more may be memory of the application.
constexpr size_t kForeignBytes = 4U << 10;

// The size of the next packed block. It divides the offered bytes evenly, so that no small rest is
// left.
size_t EvenPart(size_t offered) {
  const size_t blocks = (offered + kMaxPackedBytes - 1) / kMaxPackedBytes;
  return (offered + blocks - 1) / blocks;
}

}  // namespace

Offer::Offer(const iovec* parts, int count) : parts_(parts), count_(std::min(count, kParts)) {
  for (int i = 0; i < count_; ++i) left_ += parts_[i].iov_len;
}

void Offer::Skip(size_t bytes) {
  left_ -= bytes;
  for (skip_ += bytes; count_ > 0 && skip_ >= parts_->iov_len; --count_) {
    skip_ -= parts_->iov_len;
    ++parts_;
  }
}

int Offer::Gather(size_t bytes, iovec* to) const {
  int used = 0;
  size_t skip = skip_;
  for (int i = 0; i < count_ && bytes > 0; ++i) {
    const size_t here = std::min(parts_[i].iov_len - skip, bytes);
    if (here > 0) to[used++] = {static_cast<uint8_t*>(parts_[i].iov_base) + skip, here};
    bytes -= here;
    skip = 0;
  }
  return used;
}

bool Offer::Copy(size_t bytes, uint8_t* to) const {
  std::array<iovec, kParts> parts;
  const int used = Gather(bytes, parts.data());
  for (int i = 0; i < used; ++i) {
    const iovec& part = parts[static_cast<size_t>(i)];
    if (part.iov_len >= kForeignBytes && !base::CanRead(part.iov_base, part.iov_len)) return false;
    std::memcpy(to, part.iov_base, part.iov_len);
    to += part.iov_len;
  }
  return true;
}

IoResult BlockSender::TrySend(const iovec* parts, int count) {
  Offer offer(parts, count);
  size_t told = 0;
  size_t moved = 0;
  IoResult result{IoState::kDone, 0, 0};
  for (;;) {
    const size_t gone = std::min(ahead_, offer.left());
    offer.Skip(gone);
    ahead_ -= gone;
    told += gone;
    if (offer.left() == 0) break;
    if (!begun()) Begin(offer);
    result = packed_left() > 0 ? SendPacked() : SendRaw(&offer, &told);
    if (!result.ok()) break;
    moved += result.bytes;
  }
  const bool full = result.state == IoState::kWouldBlock;
  if (full || decision_.watching()) decision_.OnSent(moved, full, clock_());
  if (told > 0) return {IoState::kDone, told, 0};
  return result.ok() ? IoResult{IoState::kWouldBlock, 0, 0} : result;
}

void BlockSender::Begin(const Offer& offer) {
  Advice advice = decision_.Next(offer.left());
  if (advice == Advice::kSample) {
    TakeSample(offer);
    advice = decision_.Next(offer.left());
  }
  const size_t part = EvenPart(offer.left());
  if (advice == Advice::kPack && BeginPacked(offer, part)) return;
  BeginRaw(advice == Advice::kPack ? part : std::min(offer.left(), kMaxRawBytes));
}

void BlockSender::BeginRaw(size_t bytes) {
  header_ = {static_cast<uint32_t>(bytes), static_cast<uint32_t>(bytes)};
  header_left_ = kBlockHeaderBytes;
  raw_left_ = bytes;
}

// Copies the first `bytes` of the offer to plain_. False: they cannot be read. They are then sent
// raw, and the link reports the fault.
bool BlockSender::Collect(const Offer& offer, size_t bytes) {
  if (plain_ == nullptr) {
    plain_ = std::make_unique_for_overwrite<uint8_t[]>(kMaxPackedBytes);
    packed_ = std::make_unique_for_overwrite<uint8_t[]>(kBlockHeaderBytes + kMaxPackedBytes);
  }
  return offer.Copy(bytes, plain_.get());
}

void BlockSender::TakeSample(const Offer& offer) {
  const size_t bytes = std::min(offer.left(), Decision::kSampleBytes);
  if (!Collect(offer, bytes)) return decision_.OnSample(bytes, 0, 1);
  const uint64_t begin_ns = clock_();
  const size_t packed = packer_.Pack(packed_.get(), bytes, plain_.get(), bytes, decision_.level());
  decision_.OnSample(bytes, packed, clock_() - begin_ns);
}

// Begins a packed block. False: the bytes are to be sent raw.
bool BlockSender::BeginPacked(const Offer& offer, size_t bytes) {
  if (!Collect(offer, bytes)) return false;
  const uint64_t begin_ns = clock_();
  uint8_t* const to = packed_.get() + kBlockHeaderBytes;
  // `bytes - 1`: a block that does not become smaller is not packed.
  const size_t packed = packer_.Pack(to, bytes - 1, plain_.get(), bytes, decision_.level());
  decision_.OnBlock(bytes, packed, clock_() - begin_ns);
  if (packed == 0) return false;
  const BlockHeader header{static_cast<uint32_t>(packed), static_cast<uint32_t>(bytes) | kPacked};
  std::memcpy(packed_.get(), &header, sizeof header);
  packed_begin_ = 0;
  packed_end_ = kBlockHeaderBytes + packed;
  packed_plain_ = bytes;
  return true;
}

IoResult BlockSender::SendPacked() {
  const iovec part{packed_.get() + packed_begin_, packed_left()};
  const IoResult result = link_->TrySend(&part, 1);
  if (!result.ok()) return result;
  packed_begin_ += result.bytes;
  if (packed_left() == 0) {
    ahead_ += packed_plain_;
    savings_->sent_plain.fetch_add(packed_plain_, kRelaxed);
    savings_->sent_packed.fetch_add(packed_end_, kRelaxed);
  }
  return result;
}

IoResult BlockSender::SendRaw(Offer* offer, size_t* told) {
  std::array<iovec, Offer::kParts + 1> all;
  int used = 0;
  if (header_left_ > 0) {
    auto* header = reinterpret_cast<uint8_t*>(&header_) + kBlockHeaderBytes - header_left_;
    all[static_cast<size_t>(used++)] = {header, header_left_};
  }
  used += offer->Gather(std::min(raw_left_, offer->left()), all.data() + used);
  const IoResult result = link_->TrySend(all.data(), used);
  if (!result.ok()) return result;
  const size_t of_header = std::min(result.bytes, header_left_);
  header_left_ -= of_header;
  const size_t of_offer = result.bytes - of_header;
  raw_left_ -= of_offer;
  offer->Skip(of_offer);
  *told += of_offer;
  return result;
}

}  // namespace rgpu::transport::zip
