#include "rgpu_server/executor/shortage.h"

#include <array>
#include <cstdio>

#include "gen/notices.gen.h"
#include "rgpu_common/native/wire/frame.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

namespace {

// Level of a LOG notice that explains an error; the client prints it to stderr.
constexpr uint32_t kReason = 1;

// Formats bytes in the largest binary unit that fits, with two decimals unless the number is whole.
std::string Size(uint64_t bytes) {
  constexpr std::array<const char*, 4> kNames = {"TiB", "GiB", "MiB", "KiB"};
  uint64_t unit = 1ULL << 40;
  for (const char* name : kNames) {
    if (bytes >= unit) {
      char text[32];
      const double value = static_cast<double>(bytes) / static_cast<double>(unit);
      std::snprintf(text, sizeof text, bytes % unit == 0 ? "%.0f %s" : "%.2f %s", value, name);
      return text;
    }
    unit >>= 10;
  }
  return std::to_string(bytes) + " B";
}

}  // namespace

void Shortage::LeaseIsFull(const Ledger& ledger, uint64_t asked, transport::Outbox& outbox) {
  if (said_) return;
  Say(LeaseName() + ": " + Size(ledger.used()) + " of " + Size(ledger.limit()) + " used, " +
          Size(asked) + " more asked for; free memory, or ask for a larger lease (--memory)",
      outbox);
}

void Shortage::DeviceIsFull(const Ledger& ledger, uint64_t asked, transport::Outbox& outbox) {
  if (said_) return;
  Say("the device is full: it has no room for " + Size(asked) + ", although " + LeaseName() +
          " has used only " + Size(ledger.used()) + " of " + Size(ledger.limit()) +
          "; wait until others free memory, or use another device (--device)",
      outbox);
}

void Shortage::PoolIsFull(uint64_t held, uint64_t maximum, uint64_t asked,
                          transport::Outbox& outbox) {
  if (said_) return;
  Say("a memory pool of this program is full: it holds " + Size(held) + ", its maxSize is " +
          Size(maximum) + ", and " + Size(asked) +
          " more were asked for; free memory of this pool, or create it with a larger maxSize",
      outbox);
}

std::string Shortage::LeaseName() const {
  return lease_.empty() ? "the lease of this container" : "lease " + lease_;
}

// Queued for the next frame, which is the reply to the allocation or an earlier one.
void Shortage::Say(const std::string& sentence, transport::Outbox& outbox) {
  said_ = true;
  const wire::FrameHeader header = NoticeHeader(wire::Notice::kLog);
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  Put(writer, wire::Log{kReason, wire::Bytes(sentence.data(), sentence.size())});
  if (frame.End()) outbox.Post(frame, true, 0);
}

}  // namespace rgpu::exec
