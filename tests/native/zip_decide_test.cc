// When compression pays, under numbers that are made up.
#include "rgpu_common/native/transport/zip/decide.h"
#include "tests/native/testing.h"

namespace rgpu::transport::zip {
namespace {

constexpr size_t kPiece = 256U << 10;
constexpr Rate kMegabytes = 1e-3;  // a second
constexpr Rate kGigabytes = 1;

uint64_t Ns(size_t bytes, Rate rate) {
  return static_cast<uint64_t>(static_cast<double>(bytes) / rate);
}

// A stream over a link that takes `link`, of data that `speed` compresses to `ratio`.
class Stream {
 public:
  Stream(Rate link, Rate speed, double ratio) : link_(link), speed_(speed), ratio_(ratio) {}

  // The link is always full, or (idle) never.
  void Send(uint64_t bytes, bool full = true) {
    for (uint64_t end = plain + bytes; plain < end; plain += kPiece) {
      Advice advice = decision.Next(kPiece);
      if (advice == Advice::kSample) {
        ++samples;
        now += Ns(Decision::kSampleBytes, speed_);
        decision.OnSample(Decision::kSampleBytes, Packed(Decision::kSampleBytes),
                          Ns(Decision::kSampleBytes, speed_));
        advice = decision.Next(kPiece);
      }
      CHECK(advice != Advice::kSample);
      size_t wire = kPiece;
      if (advice == Advice::kPack) {
        packed += kPiece;
        wire = Packed(kPiece);
        now += Ns(kPiece, speed_);
        decision.OnBlock(kPiece, wire, Ns(kPiece, speed_));
      }
      now += Ns(wire, link_);
      decision.OnSent(wire, full, now);
    }
  }
  void set_ratio(double ratio) { ratio_ = ratio; }
  void set_link(Rate link) { link_ = link; }

  Decision decision;
  uint64_t now = 1;
  uint64_t plain = 0;
  uint64_t packed = 0;
  int samples = 0;

 private:
  size_t Packed(size_t bytes) const {
    return static_cast<size_t>(static_cast<double>(bytes) / ratio_);
  }
  Rate link_;
  Rate speed_;
  double ratio_;
};

TEST(zip, compresses_where_the_link_is_slower_than_what_it_saves) {
  // link < speed * (1 - 1 / ratio)
  struct Case {
    Rate link, speed;
    double ratio;
    bool pays;
  };
  for (const Case& one : {Case{12 * kMegabytes, 0.7 * kGigabytes, 7.3, true},
                          Case{125 * kMegabytes, 1.2 * kGigabytes, 5.7, true},
                          Case{125 * kMegabytes, 0.46 * kGigabytes, 4.4, true},
                          Case{0.9 * kGigabytes, 1.0 * kGigabytes, 5.7, false},
                          Case{0.9 * kGigabytes, 6.5 * kGigabytes, 9.9, true},
                          Case{125 * kMegabytes, 0.4 * kGigabytes, 1.4, false},
                          Case{12 * kMegabytes, 0.7 * kGigabytes, 1.08, false},
                          Case{2 * kGigabytes, 6.5 * kGigabytes, 9.9, false}}) {
    Stream stream(one.link, one.speed, one.ratio);
    stream.Send(64U << 20);
    CHECK_EQ(stream.packed > 0, one.pays);
    if (one.pays) CHECK(stream.packed > stream.plain - (2U << 20));
  }
}

TEST(zip, a_link_of_which_nothing_is_known_is_left_alone) {
  Stream stream(12 * kMegabytes, kGigabytes, 10);
  stream.Send(64U << 20, false);
  CHECK_EQ(stream.samples, 0);
  CHECK_EQ(stream.packed, 0U);
}

TEST(zip, a_fast_link_is_not_even_sampled) {
  Stream stream(1.5 * kGigabytes, 6 * kGigabytes, 10);
  stream.Send(1U << 30);
  CHECK_EQ(stream.samples, 0);
}

TEST(zip, what_does_not_compress_costs_little) {
  // The fastest link that is looked at, and the codec's speed on noise.
  Stream stream(1.2 * kGigabytes, 5 * kGigabytes, 1);
  stream.Send(1U << 30);
  CHECK(stream.samples > 0 && stream.samples < 25);
  const auto sampled = static_cast<uint64_t>(stream.samples) * Ns(Decision::kSampleBytes, 5);
  CHECK(sampled * 1000 < stream.now);  // 0.1 %
}

TEST(zip, small_commands_are_left_alone) {
  Stream stream(12 * kMegabytes, kGigabytes, 10);
  stream.Send(4U << 20);
  CHECK(stream.decision.Next(kPiece) == Advice::kPack);
  CHECK(stream.decision.Next(Decision::kLeastBytes - 1) == Advice::kRaw);
}

TEST(zip, data_that_stops_and_starts_to_compress_is_noticed) {
  Stream stream(12 * kMegabytes, kGigabytes, 10);
  stream.Send(16U << 20);
  const uint64_t before = stream.packed;
  stream.set_ratio(1);
  stream.Send(64U << 20);
  CHECK(stream.packed - before <= 4 * kPiece);
  const uint64_t noise = stream.packed;
  stream.set_ratio(10);
  stream.Send(128U << 20);
  CHECK(stream.packed - noise > 32U << 20);
}

TEST(zip, a_link_that_became_fast_is_noticed) {
  Stream stream(12 * kMegabytes, kGigabytes, 10);
  stream.Send(16U << 20);
  CHECK(stream.decision.Next(kPiece) == Advice::kPack);
  stream.set_link(kGigabytes);
  stream.Send(2 * Decision::kForgetBytes, false);
  CHECK(stream.decision.Next(kPiece) == Advice::kRaw);
}

TEST(zip, a_peer_that_paused_is_soon_forgiven) {
  LinkRate link;
  uint64_t now = 1;
  for (int i = 0; i < 6; ++i) link.OnSent(kPiece, true, now += Ns(kPiece, 2));
  CHECK(link.value() > 1.9);
  link.OnSent(kPiece, true, now += 5'000'000'000);
  for (int i = 0; i < 16; ++i) link.OnSent(kPiece, true, now += Ns(kPiece, 2));
  CHECK(link.value() > 1.9);
}

TEST(zip, a_relay_that_takes_much_at_once_is_as_fast_as_what_it_passes_on) {
  LinkRate link;
  uint64_t now = 1;
  for (int i = 0; i < 64; ++i) {
    link.OnSent(kPiece, true, now += i % 8 == 0 ? Ns(8 * kPiece, 0.03) : Ns(kPiece, 5));
  }
  CHECK(link.value() > 0.025 && link.value() < 0.035);
}

TEST(zip, a_sender_that_pauses_is_no_slow_link) {
  LinkRate link;
  uint64_t now = 1;
  const auto burst = [&] {
    for (int i = 0; i < 16; ++i) link.OnSent(kPiece / 8, true, now += Ns(kPiece / 8, 1));
    link.OnSent(kPiece / 8, false, now += Ns(kPiece / 8, 1));
  };
  burst();
  CHECK(link.watching());
  for (int i = 0; i < 20; ++i) {
    now += 1'000'000'000;
    burst();
  }
  CHECK(link.value() > 0.9);
}

TEST(zip, a_link_that_takes_all_in_between_is_measured_all_the_same) {
  LinkRate link;
  uint64_t now = 1;
  for (int i = 0; i < 12; ++i) {
    link.OnSent(kPiece / 2, false, now += Ns(kPiece / 2, 0.1));
    link.OnSent(kPiece / 2, true, now += Ns(kPiece / 2, 1));
  }
  CHECK(link.value() > 0.15 && link.value() < 0.25);
}

TEST(zip, a_link_is_as_fast_as_it_was_lately) {
  LinkRate link;
  uint64_t now = 1;
  for (int i = 0; i < 9; ++i) link.OnSent(kPiece, true, now += Ns(kPiece, 1));
  CHECK(link.value() > 0.9);
  for (int i = 0; i < 16; ++i) link.OnSent(kPiece, true, now += Ns(kPiece, 0.01));
  CHECK(link.value() < 0.011);
}

}  // namespace
}  // namespace rgpu::transport::zip
