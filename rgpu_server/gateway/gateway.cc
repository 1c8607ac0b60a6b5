#include "rgpu_server/gateway/gateway.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/network.h"
#include "rgpu_server/gateway/peer.h"
#include "rgpu_server/gateway/threads.h"

namespace rgpu::gateway {
namespace {

constexpr int kEndPollMs = 100;
constexpr int kReportMs = 1000;
// Guests that made room (guests.h) still have a thread until they end, a moment later.  So many may
// exist beyond the limit of connections.
constexpr unsigned int kMostEnding = 256;

}  // namespace

Gateway::Gateway(Terminal& terminal, Service& service, const Control& control,
                 std::string transport, Limits limits, Figures* figures)
    : terminal_(terminal),
      service_(service),
      control_(control),
      transport_(std::move(transport)),
      limits_(limits),
      guests_({limits.handshakes, limits.connections}),
      figures_(*figures) {}

void Gateway::Run(std::vector<base::UniqueFd> listeners) {
  while (Serve(listeners)) {
  }
  listeners.clear();
  terminal_.Close();
  service_.Leave();
  // Sessions go on without the daemon, and their bytes pass through this process.
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
  // Only an open connection changes the figures.  Without one, the last changes are in them
  // already.
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
  Arrival arrival;
  arrival.door = listener;
  arrival.socket = terminal_.Accept(listener, &arrival.peer);
  if (!arrival.socket.valid()) return;
  const std::string peer = arrival.peer;
  unsigned int sent_away = 0;
  uint64_t guest = 0;
  if (connections_.fetch_add(1) < limits_.connections + kMostEnding) {
    const auto socket = std::make_shared<base::UniqueFd>(dup(arrival.socket.get()));
    guest = guests_.Enter([socket] { shutdown(socket->get(), SHUT_RDWR); },
                          base::NetworkOf(HostOf(peer)), &sent_away);
  }
  for (; sent_away > 0; --sent_away) figures_.Refused(Reason::kTooMany);
  if (guest == 0) {
    figures_.Refused(Reason::kTooMany);
    control_.Say({"refused", peer, "too many connections"});
  } else {
    Thread thread;
    const auto owned = std::make_shared<Arrival>(std::move(arrival));
    if (thread.Start([this, owned, guest] { Attend(std::move(*owned), guest); })) {
      thread.Detach();
      return;
    }
    guests_.Leave(guest);
  }
  --connections_;
}

void Gateway::Attend(Arrival arrival, uint64_t guest) {
  {
    wire::Preface preface{transport_, arrival.peer, "", false};
    Refusal refusal;
    const std::unique_ptr<transport::Connection> client =
        terminal_.Welcome(std::move(arrival), limits_.handshake_ms, &preface, &refusal);
    if (client == nullptr) {
      figures_.Refused(refusal.reason);
      if (!refusal.why.empty()) control_.Say({"refused", preface.peer, refusal.why});
    } else if (guests_.Introduce(guest, [raw = client.get()] { raw->Shutdown(); })) {
      const auto known = [this, guest](bool is) { guests_.SetKnown(guest, is); };
      service_.Carry(*client, preface, known);
    }
    guests_.Leave(guest);
  }
  --connections_;
}

}  // namespace rgpu::gateway
