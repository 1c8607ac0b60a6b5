#include "rgpu_server/gateway/http2/tunnel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/gateway/http2/carrier.h"

namespace rgpu::gateway::http2 {
namespace {

// The window of a tunnel that the daemon has answered, as far as other tunnels leave it.
constexpr int32_t kWideWindow = 4 << 20;
constexpr size_t kTunnelReadBytes = 256U << 10;
constexpr uint64_t kBeatNs = 3 * base::kSecond;
constexpr uint64_t kSilenceNs = 10 * base::kSecond;
// How long the gateway tries to bring a client to a busy daemon, and how often.
constexpr uint64_t kKnockNs = 5 * base::kSecond;
constexpr uint64_t kKnockAgainNs = 10 * base::kMillisecond;

}  // namespace

Tunnel::Tunnel(Carrier& carrier, uint64_t place, const Fields& request)
    : Call(carrier, place, request),
      began_ns_(base::NowNs()),
      heard_ns_(began_ns_),
      said_ns_(began_ns_) {}

// From the client

void Tunnel::OnData(const uint8_t* data, size_t bytes) {
  heard_ns_ = base::NowNs();
  if (finished()) {
    carrier().session().Consume(*this, bytes);
    return;
  }
  const size_t held = in_.bytes();
  const ChunkReader::Fault fault = reader_.Take(data, bytes);
  // The client gets no new window for bytes that wait here.
  carrier().session().Consume(*this, bytes - std::min(bytes, in_.bytes() - held));
  if (fault != ChunkReader::Fault::kNone) Refuse(fault);
}

void Tunnel::Refuse(ChunkReader::Fault fault) {
  if (state_ == State::kSilent) carrier().house().figures.Refused(Reason::kHandshake);
  if (fault == ChunkReader::Fault::kTooLong) {
    Finish({Code::kResourceExhausted, "the peer sent a message that is longer than agreed"});
  } else if (fault == ChunkReader::Fault::kCompressed) {
    Finish({Code::kInvalidArgument, "the peer sent a compressed message, which was not agreed on"});
  } else {
    Finish({Code::kInvalidArgument, "the peer sent a message that is not a Chunk of a tunnel"});
  }
}

void Tunnel::Data(const uint8_t* data, size_t bytes) {
  if (finished() || ending_) return;
  carrier().house().figures.received += bytes;
  if (state_ == State::kSilent) Knock(heard_ns_);
  const size_t sent = state_ == State::kOpen && in_.bytes() == 0 ? HandOn(data, bytes) : 0;
  if (!deaf_) in_.Add(data + sent, bytes - sent);
}

void Tunnel::EndOfData() {
  ending_ = true;
  EndIfFlushed();
}

void Tunnel::OnEnd() {
  ending_ = true;
  if (state_ == State::kSilent || inner_ended_) {
    Finish({});
  } else {
    EndIfFlushed();
  }
}

// The daemon hears of the call only when its first data has come.
void Tunnel::Knock(uint64_t now) {
  if (state_ == State::kSilent) {
    state_ = State::kKnocking;
    knocked_ns_ = now;
  }
  knock_again_ns_ = now + kKnockAgainNs;
  if (!carrier().house().door.full()) {
    inner_ = carrier().house().door.Enter(carrier().preface());
    if (inner_.valid()) {
      state_ = State::kOpen;
      ++carrier().house().figures.open;
      Flush();
      return;
    }
  } else if (now - knocked_ns_ < kKnockNs) {
    return;
  }
  carrier().house().figures.Refused(Reason::kNoServer);
  Finish({Code::kUnavailable,
          "the server behind this gateway does not answer; is it being restarted?"});
}

// To and from the daemon

Call::Wait Tunnel::waits() const {
  if (state_ != State::kOpen || finished()) return {};
  short events = 0;
  if (in_.bytes() > 0) events |= POLLOUT;
  if (!inner_ended_ && out_.bytes() == 0) events |= POLLIN;
  // poll(2) always reports a closed end. It is waited for only if the tunnel acts on it.
  if (events == 0 && !inner_ended_) return {};
  return {inner_.get(), events};
}

void Tunnel::OnReady(short events) {
  if (finished()) return;
  if (inner_ended_ && (events & (POLLHUP | POLLERR)) != 0) {
    Finish({});
    return;
  }
  if (in_.bytes() > 0 && (events & (POLLOUT | POLLHUP | POLLERR)) != 0) Flush();
  if (!inner_ended_ && out_.bytes() == 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0) Read();
}

size_t Tunnel::HandOn(const uint8_t* data, size_t bytes) {
  size_t sent = 0;
  while (sent < bytes && !deaf_) {
    const ssize_t count =
        send(inner_.get(), data + sent, bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // The last bytes that it sent may still be there to be read.
      deaf_ = true;
      sent = bytes;
    }
  }
  return sent;
}

void Tunnel::Flush() {
  const size_t sent = HandOn(in_.data(), in_.bytes());
  in_.Drop(sent);
  carrier().session().Consume(*this, sent);
  heard_ns_ = base::NowNs();
  EndIfFlushed();
}

void Tunnel::EndIfFlushed() {
  if (ending_ && state_ == State::kOpen && in_.bytes() == 0) shutdown(inner_.get(), SHUT_WR);
}

void Tunnel::Read() {
  uint8_t* room = out_.Room(kChunkHeadBytes + kTunnelReadBytes);
  const ssize_t count = recv(inner_.get(), room + kChunkHeadBytes, kTunnelReadBytes, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    InnerEnded();
    return;
  }
  const auto bytes = static_cast<size_t>(count);
  WriteChunkHead(room, bytes);
  out_.Filled(kChunkHeadBytes + bytes);
  carrier().house().figures.sent += bytes;
  if (!admitted()) {
    // The daemon has answered the caller: from now on the call keeps its place.
    Admit();
    window_ = carrier().house().windows.Take(kWideWindow - kStreamWindow);
    if (window_ > 0) carrier().session().SetWindow(*this, kStreamWindow + window_);
  }
  Send();
}

void Tunnel::InnerEnded() {
  inner_ended_ = true;
  pollfd inner{inner_.get(), 0, 0};
  const bool gone = poll(&inner, 1, 0) > 0;
  if (gone || heard_all()) {
    Finish({});
    return;
  }
  // The client may send on until either end closes the connection.
  out_.Add(kEndOfData, sizeof kEndOfData);
  Send();
}

void Tunnel::OnSent() { said_ns_ = base::NowNs(); }

// Time

uint64_t Tunnel::NextDue() const {
  if (state_ == State::kSilent) {
    const auto first = static_cast<uint64_t>(carrier().house().patience.first);
    return began_ns_ + first * base::kMillisecond;
  }
  if (state_ == State::kKnocking) return knock_again_ns_;
  const uint64_t beat = out_.bytes() == 0 ? said_ns_ + kBeatNs : kNever;
  const uint64_t silence = in_.bytes() == 0 && !heard_all() ? heard_ns_ + kSilenceNs : kNever;
  return std::min(beat, silence);
}

void Tunnel::Look(uint64_t now) {
  if (now < NextDue()) return;
  if (state_ == State::kKnocking) {
    Knock(now);
  } else if (state_ == State::kSilent) {
    carrier().house().figures.Refused(Reason::kLate);
    Finish({Code::kDeadlineExceeded, "the client sent no data in time"});
  } else if (in_.bytes() == 0 && !heard_all() && now >= heard_ns_ + kSilenceNs) {
    Finish({Code::kDeadlineExceeded, "nothing came from the peer for 10 s"});
  } else {
    // An idle tunnel keeps no memory.
    out_.Clear();
    if (in_.bytes() == 0) in_.Clear();
    out_.Add(kHeartbeat, sizeof kHeartbeat);
    said_ns_ = now;
    Send();
  }
}

void Tunnel::GiveBack() {
  if (inner_.valid()) --carrier().house().figures.open;
  inner_.reset();
  carrier().house().windows.Give(window_);
  window_ = 0;
}

}  // namespace rgpu::gateway::http2
