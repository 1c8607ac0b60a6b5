// Sends WELCOME, and sets up a ring in shared memory if the client asks for one.
#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/session.h"

namespace rgpu::exec {

namespace {

// The client answers at once; until then the worker does nothing else.
constexpr int kAnswerMs = 10'000;

}  // namespace

// Returns the file of the device's memory, if the client may map it: the memory must lie in the
// client's own band, and it holds only this session's allocations.
std::vector<int> Session::SharedMemory() const {
  uint64_t base = 0;
  uint64_t bytes = 0;
  const int fd = driver_.heap == nullptr ? -1 : driver_.heap(&base, &bytes);
  if (fd < 0 || base != welcome_.band.base || bytes > welcome_.band.size) return {};
  return {fd};
}

bool Session::SayWelcome() {
  std::vector<int> memory;
  bool ring = false;
  if (shared_ != nullptr) {
    int error = 0;
    ring = shared_->Make(&error);
    if (ring) {
      memory = SharedMemory();
    } else {
      ring_ = wire::worker::Ring::kNotMade;
      base::Log(base::Level::kInfo, "the session gets no ring in shared memory: %s",
                base::ErrnoText(error).c_str());
    }
    const uint64_t value =
        !ring ? static_cast<uint64_t>(error) << wire::kRingErrnoShift
              : wire::kRingGranted | (memory.empty() ? 0 : wire::kDeviceMemoryGranted);
    welcome_.grants.push_back({static_cast<uint16_t>(wire::WishKey::kShm), value});
    if (!memory.empty()) executor_->directs().Allow();
  }
  if (links_.grace_ms() != 0) {
    const auto key = static_cast<uint16_t>(wire::WishKey::kResumable);
    welcome_.grants.push_back({key, links_.grace_ms()});
  }
  if (links_.compresses()) {
    welcome_.grants.push_back({static_cast<uint16_t>(wire::WishKey::kCompression), 1});
  }
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kWelcome);
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  wire::Put(writer, welcome_);
  if (!frame.End()) return false;
  const bool said = ring ? shared_->SendWith(frame.data(), frame.size(), memory) && AwaitAnswer()
                         : outbox_.Post(frame) && outbox_.Drain(kAnswerMs);
  return said && links_.StartRecords(wire::LaneName::kCommand, &reader_);
}

// Waits for the client's answer: it uses the rings, or says why not.
bool Session::AwaitAnswer() {
  wire::FrameHeader header;
  wire::ByteView head;
  if (reader_.Next(&header, &head, kAnswerMs) != transport::ReadState::kFrame) return false;
  wire::Shm answer;
  wire::Reader fields(head.data, head.size);
  if (header.kind != wire::Kind::kHandshake || header.bulk_bytes != 0 ||
      header.opcode != static_cast<uint16_t>(wire::Handshake::kShm) ||
      !wire::Get(fields, &answer)) {
    return false;
  }
  if (answer.accepted == 0) {
    base::Log(base::Level::kInfo, "the client stays on the socket: %s", answer.reason.c_str());
    shared_->StayOnSocket();
    ring_ = wire::worker::Ring::kDeclined;
    return true;
  }
  // Bytes that follow on the socket would be lost.
  if (reader_.has_buffered()) return false;
  shared_->Switch();
  ring_ = wire::worker::Ring::kUsed;
  base::Log(base::Level::kInfo, "commands come through shared memory");
  return true;
}

}  // namespace rgpu::exec
