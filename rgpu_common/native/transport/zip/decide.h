// Whether compression pays: numbers in, verdicts out.  No clock, no I/O.
//
// A byte costs 1 / link raw, and 1 / speed + 1 / (link * ratio) compressed, if the thread that
// compresses is the one that sends.  So it pays where link < speed * (1 - 1 / ratio).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rgpu::transport::zip {

// Bytes per nanosecond, which is GB/s.
using Rate = double;

// How fast a link is, by what it takes while it is full.  Between two moments at which it is full
// it has passed on what it took.  The time in which it had room and nobody gave it more does not
// count, since it may have stood still: rather too fast a link than too slow a one.
class LinkRate {
 public:
  static constexpr uint64_t kWindowBytes = 256U << 10;
  // After so long without more it is not looked at any more until it is full again.
  static constexpr uint64_t kGapNs = 20'000'000;

  // The link took `bytes`, and (full) would have taken no more.
  void OnSent(uint64_t bytes, bool full, uint64_t now_ns);
  // OnSent is of use although the link is not full.
  bool watching() const { return watching_; }
  // The mean of the last windows, 4 MiB: relays take some MiB at once and then nothing for a while.
  // A peer that paused counts as slow for no longer than that.  0: not known.
  Rate value() const;
  void Forget();

 private:
  struct Window {
    uint64_t bytes = 0;
    uint64_t ns = 0;
  };
  static constexpr size_t kWindows = 16;
  static constexpr size_t kLeastWindows = 2;

  bool watching_ = false;  // the link was full, and what it took since then is
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
  // Between two samples, as long as they do not pay: it doubles from the first to the second.
  static constexpr uint64_t kShortestPause = 1U << 20;
  static constexpr uint64_t kLongestPause = 64U << 20;
  // A link that was not full for so long is not what holds the stream up.
  static constexpr uint64_t kForgetBytes = 64U << 20;
  static constexpr double kLeastRatio = 1.3;
  // 10 Gbit/s: from here on nothing is even looked at.
  static constexpr Rate kFastLink = 1.25;
  // Below 0.5 Gbit/s the better ratio is worth more than the speed.
  static constexpr Rate kSlowLink = 0.0625;
  static constexpr int kFastLevel = -5;
  static constexpr int kGoodLevel = 1;

  // What to do with the next `bytes` of the stream.  After kSample OnSample, then Next again.
  Advice Next(size_t bytes);
  // So many bytes of the stream came to `packed` bytes.  packed 0: to no less.
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
  uint64_t skipped_ = kShortestPause;  // bytes that went raw since the last sample
  uint64_t unhindered_ = 0;            // bytes of the stream since the link was full
};

}  // namespace rgpu::transport::zip
