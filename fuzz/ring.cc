// A hostile peer at the control words of a ring.  The input is a list of steps: a byte that says
// which, eight that are its operand.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "rgpu_common/native/transport/shm/ring.h"

namespace {

using rgpu::transport::RingControl;
using rgpu::transport::RingReader;
using rgpu::transport::RingResult;
using rgpu::transport::RingState;
using rgpu::transport::RingWriter;

constexpr size_t kBytes = 4096;
constexpr size_t kStepBytes = 9;
constexpr size_t kMostSteps = 512;

void Require(bool holds) {
  if (!holds) std::abort();
}

struct Bell final : rgpu::transport::Doorbell {
  void Ring() override {}
};

void Check(const RingResult& result, size_t asked) {
  Require(result.bytes <= asked && result.bytes <= kBytes);
  Require((result.state == RingState::kDone) == (result.bytes > 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Memory of their own: the sanitizer sees what is touched outside of them.
  const auto control = std::make_unique<RingControl>();
  const std::unique_ptr<uint8_t[]> ring(new uint8_t[kBytes]());
  std::vector<uint8_t> mine(2 * kBytes);
  Bell bell;
  RingWriter writer(control.get(), ring.get(), kBytes, &bell);
  RingReader reader(control.get(), ring.get(), kBytes, &bell);
  for (size_t step = 0; step < kMostSteps && size >= kStepBytes; ++step) {
    uint64_t value = 0;
    std::memcpy(&value, data + 1, sizeof value);
    const size_t count = value % mine.size();
    const iovec parts[2] = {{mine.data(), count / 2}, {mine.data() + count / 2, count - count / 2}};
    switch (data[0] % 8) {
      case 0:
        control->head = value;
        break;
      case 1:
        control->tail = value;
        break;
      case 2:
        control->reader_sleeps = static_cast<uint32_t>(value);
        control->writer_sleeps = static_cast<uint32_t>(value >> 32);
        break;
      case 3:
        control->tail += value % (2 * kBytes);
        break;
      case 4:
        control->head += value % (2 * kBytes);
        break;
      case 5:
        Check(writer.Write(parts, 2), count);
        break;
      case 6:
        Check(reader.Read(mine.data(), count + 1), count + 1);
        break;
      default:
        static_cast<void>(writer.HasRoom(count));
        static_cast<void>(reader.HasBytes());
    }
    data += kStepBytes;
    size -= kStepBytes;
  }
  return 0;
}
