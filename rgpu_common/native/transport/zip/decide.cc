#include "rgpu_common/native/transport/zip/decide.h"

#include <algorithm>

namespace rgpu::transport::zip {
namespace {

// The weight of the newest block in the smoothed speed. One block may take long because of other
// load.
constexpr double kNewest = 0.25;

Rate RateOf(uint64_t bytes, uint64_t ns) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(ns, 1));
}

}  // namespace

void LinkRate::OnSent(uint64_t bytes, bool full, uint64_t now_ns) {
  const uint64_t passed_ns = now_ns - last_ns_;
  if (!was_full_ && passed_ns > kGapNs) watching_ = false;
  bytes_ += bytes;
  if (was_full_) busy_ns_ += passed_ns;
  const bool whole = watching_ && bytes_ >= kWindowBytes;
  if (full && whole) windows_[count_++ % kWindows] = {bytes_, busy_ns_};
  if (full && (whole || !watching_)) bytes_ = busy_ns_ = 0;
  watching_ = watching_ || full;
  was_full_ = full;
  last_ns_ = now_ns;
}

Rate LinkRate::value() const {
  if (count_ < kLeastWindows) return 0;
  Window all;
  for (const Window& one : windows_) {
    all.bytes += one.bytes;
    all.ns += one.ns;
  }
  return RateOf(all.bytes, all.ns);
}

void LinkRate::Forget() { *this = LinkRate(); }

void Decision::OnSent(uint64_t bytes, bool full, uint64_t now_ns) {
  link_.OnSent(bytes, full, now_ns);
  if (full) unhindered_ = 0;
}

Advice Decision::Next(size_t bytes) {
  if (bytes < kLeastBytes) return Advice::kRaw;
  unhindered_ += bytes;
  if (unhindered_ > kForgetBytes) {
    link_.Forget();
    unhindered_ = 0;
  }
  const Rate link = link_.value();
  if (link == 0 || link >= kFastLink) {
    packs_ = false;
    return Advice::kRaw;
  }
  if (packs_) return Advice::kPack;
  if (skipped_ >= pause_) return Advice::kSample;
  skipped_ += bytes;
  return Advice::kRaw;
}

bool Decision::Pays(size_t plain, size_t packed) const {
  if (packed == 0) return false;
  const double ratio = static_cast<double>(plain) / static_cast<double>(packed);
  return ratio >= kLeastRatio && link_.value() < speed_ * (1 - 1 / ratio);
}

void Decision::OnSample(size_t plain, size_t packed, uint64_t ns) {
  speed_ = RateOf(plain, ns);
  if (Pays(plain, packed)) {
    packs_ = true;
  } else {
    StopPacking();
  }
}

void Decision::OnBlock(size_t plain, size_t packed, uint64_t ns) {
  speed_ += kNewest * (RateOf(plain, ns) - speed_);
  if (Pays(plain, packed)) {
    pause_ = std::max(kShortestPause, pause_ / 2);
  } else {
    StopPacking();
  }
}

void Decision::StopPacking() {
  packs_ = false;
  pause_ = std::min(kLongestPause, 2 * pause_);
  skipped_ = 0;
}

}  // namespace rgpu::transport::zip
