#include "rgpu_server/executor/links.h"

#include <algorithm>

#include "gen/cuda_abi.gen.h"
#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/wire/fields.h"

namespace rgpu::exec {

namespace {

// The socket buffer of a new connection has room for an answer of a few dozen bytes.
constexpr int kAnswerMs = 100;

bool SayResumed(transport::Connection& link, uint64_t received) {
  return transport::SendHandshake(link, wire::Handshake::kResumed, wire::Resumed{received},
                                  kAnswerMs);
}

bool Wishes(const Assignment& assignment, wire::WishKey key) {
  wire::Hello hello;
  wire::Reader head(assignment.hello.data(), assignment.hello.size());
  if (!wire::Get(head, &hello) || hello.minor < wire::kGrantsMinor) return false;
  return std::ranges::any_of(hello.wishes, [key](const wire::Wish& wish) {
    return wish.key == static_cast<uint16_t>(key) && wish.value == 1;
  });
}

}  // namespace

void RefuseResume(transport::Connection& link, int32_t status, const std::string& sentence) {
  transport::SendHandshake(link, wire::Handshake::kRefused, wire::Refused{sentence}, kAnswerMs,
                           status);
}

namespace {

void RefuseMismatch(transport::Connection& link) {
  RefuseResume(link, CUDA_ERROR_EXTERNAL_DEVICE,
               "the client confirms bytes that the server never sent; install the same rgpu "
               "release on both");
}

}  // namespace

Links::Links(const Assignment& assignment)
    : session_(assignment.session), secret_(assignment.secret) {
  if (assignment.resume_grace_ms == 0 || !Wishes(assignment, wire::WishKey::kResumable)) return;
  grace_ms_ = assignment.resume_grace_ms;
  // Bytes that go through a ring are never compressed.
  compresses_ = assignment.compression && Wishes(assignment, wire::WishKey::kCompression) &&
                !Wishes(assignment, wire::WishKey::kShm) &&
                transport::zip::LoadZstd(nullptr) != nullptr;
}

std::unique_ptr<transport::Connection> Links::Wrap(wire::LaneName name,
                                                   std::unique_ptr<transport::Connection> link,
                                                   uint32_t epoch) {
  if (grace_ms_ == 0) return link;
  if (compresses_ && name == wire::LaneName::kCommand) {
    auto compressed = transport::zip::Compress(std::move(link), &savings_);
    first_ = compressed.get();
    link = std::move(compressed);
  }
  transport::LaneOptions options;
  options.grace_ms = static_cast<int>(grace_ms_);
  options.epoch = epoch;
  auto lane = std::make_unique<transport::Lane>(std::move(link), options, this);
  lanes_[static_cast<size_t>(name)] = lane.get();
  return lane;
}

bool Links::StartRecords(wire::LaneName name, const transport::FrameReader* reader) {
  if (lane(name) == nullptr) return true;
  if (reader != nullptr && reader->has_buffered()) return false;
  if (name == wire::LaneName::kCommand && first_ != nullptr) first_->StartBlocks();
  lane(name)->StartRecords();
  return true;
}

std::string Links::Reason() const {
  for (const auto& lane : lanes_) {
    if (lane.load() == nullptr) continue;
    if (std::string reason = lane.load()->LostReason(); !reason.empty()) return reason;
  }
  return {};
}

bool Links::Knows(const wire::Resume& resume) const {
  return grace_ms_ != 0 && resume.session == session_ && wire::SameSecret(resume.secret, secret_);
}

bool Links::Begin(const wire::Resume& resume, transport::Connection& link) {
  if (resume.received != 0) {
    RefuseMismatch(link);
    return false;
  }
  return SayResumed(link, 0);
}

std::optional<Links::Report> Links::Resume(const wire::Resume& resume,
                                           std::unique_ptr<transport::Connection> link) {
  transport::Lane& lane = *this->lane(resume.lane);
  const transport::LaneStats before = lane.stats();
  transport::zip::CompressedConnection* compressed = nullptr;
  if (compresses_ && resume.lane == wire::LaneName::kCommand) {
    auto wrapped = transport::zip::Compress(std::move(link), &savings_);
    compressed = wrapped.get();
    link = std::move(wrapped);
  }
  const auto greet = [compressed](transport::Connection& fresh, uint64_t received) {
    const bool said = SayResumed(fresh, received);
    if (compressed != nullptr) compressed->StartBlocks();
    return said;
  };
  switch (lane.Attach(link, resume.epoch, resume.received, greet)) {
    case transport::AttachState::kAttached:
      break;
    case transport::AttachState::kStale:
      RefuseResume(*link, wire::kTryAgain, "a newer connection of this session is there already");
      return std::nullopt;
    case transport::AttachState::kMismatch:
      RefuseMismatch(*link);
      return std::nullopt;
    case transport::AttachState::kGone:
      RefuseResume(*link, CUDA_ERROR_EXTERNAL_DEVICE, "the session has ended");
      return std::nullopt;
  }
  const transport::LaneStats after = lane.stats();
  return Report{resume.lane, resume.epoch, after.moves != before.moves,
                after.resent_bytes - before.resent_bytes};
}

void Links::OnCut() {
  base::Log(base::Level::kInfo, "a connection was cut; waiting %u ms for another one", grace_ms_);
}

void Links::OnLink() {
  if (back_) back_();
}

}  // namespace rgpu::exec
