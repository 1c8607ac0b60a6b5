// Decides whether compression pays. Pure code: numbers go in, advice comes out; no clock, no I/O.
//
// The thread that compresses is the thread that sends. A raw byte therefore takes 1 / link, and a
// compressed byte takes 1 / speed + 1 / (link * ratio). Compression pays if link < speed * (1 - 1 /
// ratio).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rgpu::transport::zip {

// Bytes per nanosecond, which is GB/s.
using Rate = double;

// Measures how fast a link is. Between two moments at which the link is full, it has passed on
// exactly the bytes that it took in between. Time in which the link had room does not count,
// because the link may have been idle. The estimate is therefore rather too high than too low.
class LinkRate {
 public:
  static constexpr uint64_t kWindowBytes = 256U << 10;
  // After this long without bytes, the measurement stops until the link is full again.
  static constexpr uint64_t kGapNs = 20'000'000;

  // The link took `bytes`. If `full`, it has no room for more.
  void OnSent(uint64_t bytes, bool full, uint64_t now_ns);
  // True if OnSent must also be called while the link is not full.
  bool watching() const { return watching_; }
  // The mean over the last windows, together 4 MiB, because relays take some MiB at once and then
  // nothing for a while. A peer that paused therefore counts as slow only until 4 MiB more have
  // been sent. 0: not known yet.
  Rate value() const;
  void Forget();

 private:
  struct Window {
    uint64_t bytes = 0;
    uint64_t ns = 0;
  };
  static constexpr size_t kWindows = 16;
  static constexpr size_t kLeastWindows = 2;

  bool watching_ = false;  // a window is open: the members below count since the link was full
  uint64_t bytes_ = 0;
  uint64_t busy_ns_ = 0;
  uint64_t last_ns_ = 0;
  bool was_full_ = false;
  std::array<Window, kWindows> windows_{};
  size_t count_ = 0;
};

enum class Advice : uint8_t { kRaw, kSample, kPack };

class Decision {
 public:
  static constexpr size_t kLeastBytes = 16U << 10;
  static constexpr size_t kSampleBytes = 64U << 10;
  // Bytes between two samples. The pause doubles after each sample that does not pay.
  static constexpr uint64_t kShortestPause = 1U << 20;
  static constexpr uint64_t kLongestPause = 64U << 20;
  // After so many bytes without a full link, the link is not the bottleneck, and its measured speed
  // is dropped.
  static constexpr uint64_t kForgetBytes = 64U << 20;
  static constexpr double kLeastRatio = 1.3;
  // 10 Gbit/s: for a link at least this fast, no sample is taken.
  static constexpr Rate kFastLink = 1.25;
  // Below 0.5 Gbit/s, a better ratio is worth more than the compressor's speed.
  static constexpr Rate kSlowLink = 0.0625;
  static constexpr int kFastLevel = -5;
  static constexpr int kGoodLevel = 1;

  // The advice for the next `bytes` of the stream. After kSample, the caller calls OnSample and
  // then Next again.
  Advice Next(size_t bytes);
  // Compressing `plain` bytes gave `packed` bytes and took `ns`. `packed` is 0 if they did not
  // become fewer.
  void OnSample(size_t plain, size_t packed, uint64_t ns);
  void OnBlock(size_t plain, size_t packed, uint64_t ns);
  void OnSent(uint64_t bytes, bool full, uint64_t now_ns);
  bool watching() const { return link_.watching(); }
  int level() const { return link_.value() < kSlowLink ? kGoodLevel : kFastLevel; }

 private:
  bool Pays(size_t plain, size_t packed) const;
  void StopPacking();

  LinkRate link_;
  Rate speed_ = 0;  // of the compressor, smoothed
  bool packs_ = false;
  uint64_t pause_ = kShortestPause;
  uint64_t skipped_ = kShortestPause;  // bytes that were sent raw since the last sample
  uint64_t unhindered_ = 0;            // bytes of the stream since the link was full
};

}  // namespace rgpu::transport::zip
