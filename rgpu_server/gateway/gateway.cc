#include "rgpu_server/gateway/gateway.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/base/network.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/wire/frame.h"
#include "rgpu_server/gateway/peer.h"
#include "rgpu_server/gateway/relay.h"
#include "rgpu_server/gateway/threads.h"

namespace rgpu::gateway {
namespace {

constexpr int kInnerTimeoutMs = 5000;
// What a client that has ended its side may still be told.
constexpr int kLingerMs = 5000;
constexpr int kEndPollMs = 100;
constexpr int kReportMs = 1000;
// Who was sent away to make room ends at once; so many, if need be.
constexpr unsigned int kMostEnding = 256;

// A connection to the daemon: one end of a pair, of which the daemon is given the other end.
base::UniqueFd ConnectInner(int door) {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
  base::UniqueFd ours(ends[0]);
  const base::UniqueFd theirs(ends[1]);
  const char word = 'c';
  if (!base::SendMessage(door, &word, 1, {theirs.get()})) return {};
  return ours;
}

}  // namespace

Gateway::Gateway(Terminal& terminal, const Control& control, std::string transport, int door,
                 Limits limits)
    : terminal_(terminal),
      control_(control),
      transport_(std::move(transport)),
      door_(door),
      limits_(limits),
      guests_({limits.handshakes, limits.connections}) {
  // A daemon that takes nobody blocks whoever brings a client; this bounds that.
  const timeval limit{kInnerTimeoutMs / 1000, 0};
  setsockopt(door_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void Gateway::Run(std::vector<base::UniqueFd> listeners) {
  while (Serve(listeners)) {
  }
  listeners.clear();
  terminal_.Close();
  // Sessions that go on without the daemon go on through here.
  while (connections_ != 0) poll(nullptr, 0, kEndPollMs);
}

bool Gateway::Serve(const std::vector<base::UniqueFd>& listeners) {
  std::vector<pollfd> waits = {{control_.fd(), POLLIN, 0}};
  for (const base::UniqueFd& listener : listeners) waits.push_back({listener.get(), POLLIN, 0});
  if (poll(waits.data(), waits.size(), Report()) < 0) return errno == EINTR;
  for (size_t i = 1; i < waits.size(); ++i) {
    if (waits[i].revents != 0) Accept(waits[i].fd);
  }
  return waits[0].revents == 0 || HearDaemon();
}

int Gateway::Report() {
  const uint64_t now = base::NowNs();
  // Whoever is there may change them; who has left has done so before.
  const bool busy = connections_ != 0;
  if (now - reported_ns_ >= kReportMs * base::kMillisecond) {
    std::string line = figures_.Line();
    if (line == reported_) return busy ? kReportMs : -1;
    reported_ns_ = now;
    if (control_.Say({"figures", line})) reported_ = std::move(line);
  }
  return kReportMs;
}

bool Gateway::HearDaemon() {
  std::string line;
  std::vector<base::UniqueFd> files;
  if (!control_.Hear(&line, &files)) return false;
  if (line != "reload") return true;
  std::string why;
  if (terminal_.Reload(std::move(files), &why)) {
    control_.Say({"reloaded"});
  } else {
    control_.Say({"stale", why});
  }
  return true;
}

void Gateway::Accept(int listener) {
  std::string peer;
  const int socket = terminal_.Accept(listener, &peer).release();
  if (socket < 0) return;
  unsigned int sent_away = 0;
  uint64_t guest = 0;
  if (connections_.fetch_add(1) < limits_.connections + kMostEnding) {
    const std::string network = base::NetworkOf(HostOf(peer));
    guest = guests_.Enter(base::UniqueFd(dup(socket)), network, &sent_away);
  }
  for (; sent_away > 0; --sent_away) figures_.Refused(Reason::kTooMany);
  if (guest == 0) {
    figures_.Refused(Reason::kTooMany);
    control_.Say({"refused", peer, "too many connections"});
  } else {
    Thread thread;
    if (thread.Start([this, socket, peer, guest] { Attend(socket, peer, guest); })) {
      thread.Detach();
      return;
    }
    guests_.Leave(guest);
  }
  --connections_;
  close(socket);
}

void Gateway::Attend(int socket, const std::string& peer, uint64_t guest) {
  {
    wire::Preface preface{transport_, peer, "", false};
    Refusal refusal;
    const std::unique_ptr<transport::Connection> client =
        terminal_.Welcome(base::UniqueFd(socket), limits_.handshake_ms, &preface, &refusal);
    if (client == nullptr) {
      figures_.Refused(refusal.reason);
      if (!refusal.why.empty()) control_.Say({"refused", peer, refusal.why});
    } else if (guests_.Introduce(guest, client.get())) {
      Bring(*client, preface, guest);
    }
    guests_.Leave(guest);
  }
  --connections_;
}

void Gateway::Bring(transport::Connection& client, const wire::Preface& preface, uint64_t guest) {
  base::UniqueFd socket = ConnectInner(door_.get());
  if (!socket.valid()) {
    base::Log(base::Level::kError, "the server does not take the client: %s",
              base::ErrnoText(errno).c_str());
    figures_.Refused(Reason::kNoServer);
    client.EndSending();
    return;
  }
  const base::UniqueFd kept(dup(socket.get()));
  const auto inner = transport::Adopt(socket.release());
  if (inner == nullptr) return;
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kPreface);
  transport::FrameBuffer frame;
  wire::Writer head = frame.Begin(header);
  Put(head, preface);
  frame.End();
  iovec part = frame.part();
  if (transport::SendAll(*inner, &part, 1, nullptr, kInnerTimeoutMs) !=
      transport::SendState::kSent) {
    return;
  }
  const auto answered = [this, guest](bool known) { guests_.SetKnown(guest, known); };
  Relay(client, *inner, kept.get(), kLingerMs, &figures_, answered);
}

}  // namespace rgpu::gateway
