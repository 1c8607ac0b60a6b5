#include "rgpu_client/shim/lane_keeper.h"

#include <time.h>

#include <algorithm>
#include <array>

#include "gen/handshake.gen.h"
#include "rgpu_client/shim/service_thread.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"

namespace rgpu::shim {
namespace {

// The pause between two rounds of attempts doubles from the first to the longest. The first is
// short, because a restarted proxy is back at once.
constexpr int kFirstPauseMs = 20;
constexpr int kLongestPauseMs = 1000;
// The limit of one attempt, so that a path that swallows all packets leaves grace for the other
// paths.
constexpr int kAttemptMs = 2000;

// A shared-memory ring is set up only with HELLO, so a lane that resumes on a shm: path uses the
// path's Unix socket.
std::string OnSocket(const std::string& uri) {
  return uri.starts_with("shm:") ? "unix:" + uri.substr(4) : uri;
}

void Pause(int ms) {
  const timespec pause{ms / 1000, (ms % 1000) * 1'000'000L};
  nanosleep(&pause, nullptr);
}

// Receives exactly `bytes` bytes. Reading more would take bytes that belong to the lane.
bool ReceiveExactly(transport::Connection& link, uint8_t* to, size_t bytes, int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  while (bytes > 0) {
    const transport::IoResult got = link.Recv(to, bytes, deadline.left_ms());
    if (!got.ok()) return false;
    to += got.bytes;
    bytes -= got.bytes;
  }
  return true;
}

}  // namespace

void Paths::Set(const std::string& current, const std::vector<std::string>& others) {
  const std::lock_guard lock(mutex_);
  current_ = current;
  all_ = {current};
  for (const std::string& uri : others) {
    if (std::ranges::find(all_, uri) == all_.end()) all_.push_back(uri);
  }
}

std::vector<std::string> Paths::InOrder() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> order = {current_};
  for (const std::string& uri : all_) {
    if (uri != current_) order.push_back(uri);
  }
  return order;
}

std::string Paths::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void Paths::Took(const std::string& uri) {
  const std::lock_guard lock(mutex_);
  current_ = uri;
}

LaneKeeper::LaneKeeper(transport::Lane* lane, wire::LaneName name, const wire::Welcome& welcome,
                       Paths* paths, transport::zip::Savings* savings)
    : lane_(lane),
      name_(name),
      session_(welcome.session),
      secret_(welcome.secret),
      paths_(paths),
      savings_(savings) {}

bool LaneKeeper::Start() {
  const bool command = name_ == wire::LaneName::kCommand;
  return StartServiceThread(command ? "rgpu-lane" : "rgpu-lane-ctl", &LaneKeeper::Run, this);
}

void LaneKeeper::Run(void* keeper) {
  auto* self = static_cast<LaneKeeper*>(keeper);
  while (self->lane_->AwaitCut() && !self->stopped_) self->Reconnect();
  // Where the server has refused the lane, the command lane brings the reason.
  if (self->lane_->late() && self->other_ != nullptr && !self->stopped_) {
    self->other_->Fail(self->lane_->LostReason());
  }
}

void LaneKeeper::Reconnect() {
  std::string why = "no attempt was made";
  for (int pause_ms = kFirstPauseMs; lane_->cut() && !stopped_;
       pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
    const Outcome outcome = TryAll(&why);
    if (outcome == Outcome::kAttached) return;
    if (outcome == Outcome::kOver) return lane_->Fail(why);
    const int left_ms = lane_->grace_left_ms();
    if (left_ms <= 0) {
      return lane_->FailLate("the connection was cut and not resumed within resume_grace: " + why);
    }
    Pause(std::min(pause_ms, left_ms));
  }
}

LaneKeeper::Outcome LaneKeeper::TryAll(std::string* why) {
  for (const std::string& uri : paths_->InOrder()) {
    const std::lock_guard lock(mutex_);
    // A move may have given the lane another connection meanwhile.
    if (!lane_->cut()) return Outcome::kAttached;
    const int left_ms = lane_->grace_left_ms();
    if (left_ms <= 0) break;
    const Outcome outcome = TryOne(uri, std::min(left_ms, kAttemptMs), why);
    if (outcome != Outcome::kFailed) return outcome;
  }
  return Outcome::kFailed;
}

LaneKeeper::Outcome LaneKeeper::TryOne(const std::string& uri, int timeout_ms, std::string* why) {
  transport::ConnectError error;
  auto link =
      transport::Connect(OnSocket(uri), {.timeout_ms = timeout_ms, .known_first = true}, &error);
  if (link == nullptr) {
    *why = error.sentence;
    return Outcome::kFailed;
  }
  const wire::Resume resume{session_, secret_, name_, 0, ++epoch_, lane_->received()};
  uint64_t received = 0;
  Outcome outcome = Outcome::kFailed;
  *why = "the server at " + uri + " does not answer";
  if (transport::SendHandshake(*link, wire::Handshake::kResume, resume, timeout_ms))
    outcome = HearAnswer(*link, &received, why);
  if (outcome != Outcome::kAttached) return outcome;
  if (savings_ != nullptr) {
    auto compressed = transport::zip::Compress(std::move(link), savings_);
    compressed->StartBlocks();
    link = std::move(compressed);
  }
  switch (lane_->Attach(link, epoch_, received)) {
    case transport::AttachState::kAttached:
      if (name_ == wire::LaneName::kCommand) paths_->Took(uri);
      base::Log(base::Level::kInfo, "the %s lane goes over %s now (connection %u)",
                name_ == wire::LaneName::kCommand ? "command" : "control", uri.c_str(), epoch_);
      return Outcome::kAttached;
    case transport::AttachState::kMismatch:
      *why =
          "the server says that it received bytes that this client never sent; install the same "
          "release on both sides";
      return Outcome::kOver;
    default:
      return Outcome::kFailed;
  }
}

LaneKeeper::Outcome LaneKeeper::HearAnswer(transport::Connection& link, uint64_t* received,
                                           std::string* why) {
  std::array<uint8_t, wire::kHeaderBytes> bytes{};
  wire::FrameHeader header;
  if (!ReceiveExactly(link, bytes.data(), bytes.size(), kAttemptMs) ||
      !wire::ParseHeader(bytes.data(), &header) || header.kind != wire::Kind::kHandshake ||
      header.bulk_bytes != 0) {
    return Outcome::kFailed;
  }
  std::vector<uint8_t> head(header.payload_bytes);
  if (!ReceiveExactly(link, head.data(), head.size(), kAttemptMs)) return Outcome::kFailed;
  wire::Reader fields(head.data(), head.size());
  wire::Resumed resumed;
  wire::Refused refused;
  if (header.opcode == static_cast<uint16_t>(wire::Handshake::kResumed) && Get(fields, &resumed)) {
    *received = resumed.received;
    return Outcome::kAttached;
  }
  if (header.opcode != static_cast<uint16_t>(wire::Handshake::kRefused) || !Get(fields, &refused)) {
    return Outcome::kFailed;
  }
  *why = refused.sentence;
  return header.status == wire::kTryAgain ? Outcome::kFailed : Outcome::kOver;
}

bool LaneKeeper::Move(const std::string& uri, std::string* why) {
  const std::lock_guard lock(mutex_);
  return TryOne(uri, kAttemptMs, why) == Outcome::kAttached;
}

}  // namespace rgpu::shim
