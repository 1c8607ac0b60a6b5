#include "netprobe/responder/responder.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/network.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"

namespace netprobe {

using rgpu::base::NowNs;
using rgpu::base::UniqueFd;

namespace {

// How many peers have accounts; beyond it the one that has been quiet longest is forgotten.
constexpr size_t kMaxPeers = 4096;
constexpr uint64_t kForgetNs = 120'000'000'000;
constexpr int kSweepMs = 250;
constexpr char kBusy[] = "the probe responder is busy with others: try again in a few seconds";
constexpr char kTooOften[] = "this machine has probed too often: try again in a minute";

}  // namespace

PeerBook::Account& PeerBook::Find(const std::string& peer, uint64_t now_ns) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) {
    if (peers_.size() >= kMaxPeers) Forget(now_ns);
    return peers_[peer] = {bounds_.burst_probes, bounds_.burst_bytes, now_ns};
  }
  Refill(&found->second, 1, now_ns);
  return found->second;
}

void PeerBook::Refill(Account* account, double times, uint64_t now_ns) const {
  const double seconds = static_cast<double>(now_ns - account->at_ns) / 1e9 * times;
  account->at_ns = now_ns;
  account->probes =
      std::min(times * bounds_.burst_probes, account->probes + seconds * bounds_.probes_per_second);
  account->bytes =
      std::min(times * bounds_.burst_bytes, account->bytes + seconds * bounds_.bytes_per_second);
}

// Forgets peers that were quiet for long, whose accounts are full again anyway; if there are none,
// the one quiet for longest.
void PeerBook::Forget(uint64_t now_ns) {
  std::erase_if(peers_, [&](const auto& one) { return now_ns - one.second.at_ns > kForgetNs; });
  if (peers_.size() < kMaxPeers) return;
  const auto oldest = std::min_element(peers_.begin(), peers_.end(), [](auto& a, auto& b) {
    return a.second.at_ns < b.second.at_ns;
  });
  peers_.erase(oldest);
}

bool PeerBook::Open(const std::string& peer, uint64_t now_ns) {
  Account& account = Find(peer, now_ns);
  if (account.probes < 1) return false;
  account.probes -= 1;
  return true;
}

bool PeerBook::Charge(const std::string& peer, uint64_t bytes, uint64_t now_ns) {
  Account& account = Find(peer, now_ns);
  Refill(&all_, bounds_.peers, now_ns);
  const auto amount = static_cast<double>(bytes);
  if (account.bytes < amount || all_.bytes < amount) return false;
  account.bytes -= amount;
  all_.bytes -= amount;
  return true;
}

void PeerBook::GiveBack(const std::string& peer, uint64_t bytes, uint64_t now_ns) {
  Find(peer, now_ns).bytes += static_cast<double>(bytes);
  all_.bytes += static_cast<double>(bytes);
}

struct Responder::Guest {
  std::string peer;
  std::vector<uint8_t> head;
  std::unique_ptr<rgpu::transport::Connection> connection;
  std::unique_ptr<rgpu::probe::Session> session;
  uint64_t started_ns = 0;
  std::atomic<bool> done{false};
  std::thread thread;
};

Responder::Responder(rgpu::probe::Offer offer, Bounds bounds)
    : offer_(std::move(offer)),
      bounds_(bounds),
      book_(bounds),
      ended_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Responder::~Responder() {
  for (const auto& guest : guests_) guest->connection->Shutdown();
  for (const auto& guest : guests_) guest->thread.join();
}

void Responder::Take(UniqueFd socket, const std::string& name, std::vector<uint8_t> head) {
  Sweep();
  const std::string peer = rgpu::base::NetworkOf(name);
  auto connection = rgpu::transport::Adopt(socket.release());
  if (connection == nullptr) return;
  connection = rgpu::transport::MayShare(std::move(connection));
  bool often = false;
  {
    const std::lock_guard lock(mutex_);
    often = !book_.Open(peer, NowNs());
  }
  if (often || !MakeRoom(peer)) {
    rgpu::probe::RefuseNow(connection.get(), often ? kTooOften : kBusy);
    return;
  }
  auto guest = std::make_unique<Guest>();
  guest->peer = peer;
  guest->head = std::move(head);
  guest->connection = std::move(connection);
  guest->started_ns = NowNs();
  const auto charge = [this, raw = guest.get()](int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes >= 0) return book_.Charge(raw->peer, static_cast<uint64_t>(bytes), NowNs());
    book_.GiveBack(raw->peer, static_cast<uint64_t>(-bytes), NowNs());
    return true;
  };
  guest->session =
      std::make_unique<rgpu::probe::Session>(guest->connection.get(), offer_, bounds_.each, charge);
  try {
    guest->thread = std::thread([this, raw = guest.get()] { Serve(raw); });
  } catch (const std::system_error&) {
    rgpu::probe::RefuseNow(guest->connection.get(), kBusy);
    return;
  }
  guests_.push_back(std::move(guest));
}

// Makes sure that a place is free for `peer`, if necessary by ending another probe. First one whose
// PROBE has not arrived yet.
bool Responder::MakeRoom(const std::string& peer) {
  const auto count = [&](const std::string& one) {
    return static_cast<size_t>(
        std::ranges::count_if(guests_, [&](const auto& guest) { return guest->peer == one; }));
  };
  const size_t same = count(peer);
  if (same >= bounds_.places_per_peer) return false;
  if (guests_.size() < bounds_.places) return true;
  auto leaves = std::ranges::find_if(
      guests_, [](const auto& guest) { return guest->head.empty() && !guest->session->opened(); });
  if (leaves == guests_.end()) {
    // Otherwise the oldest probe of the peer with the most, if that peer still has no fewer than
    // `peer` afterwards.
    leaves = std::ranges::max_element(guests_, {},
                                      [&](const auto& guest) { return count(guest->peer); });
    if (count((*leaves)->peer) <= same + 1) return false;
  }
  (*leaves)->connection->Shutdown();
  (*leaves)->thread.join();
  guests_.erase(leaves);
  return true;
}

void Responder::Serve(Guest* guest) {
  const rgpu::wire::ByteView head = rgpu::wire::Bytes(guest->head.data(), guest->head.size());
  guest->session->Serve(guest->head.empty() ? nullptr : &head);
  guest->connection->Shutdown();
  guest->done = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t said = write(ended_.get(), &one, sizeof one);
}

int Responder::Sweep() {
  uint64_t ends = 0;
  [[maybe_unused]] const ssize_t got = read(ended_.get(), &ends, sizeof ends);
  const uint64_t now = NowNs();
  const auto allowed = static_cast<uint64_t>(bounds_.each.time_ms) * 1'000'000;
  for (auto at = guests_.begin(); at != guests_.end();) {
    Guest& guest = **at;
    if (guest.done) {
      guest.thread.join();
      at = guests_.erase(at);
      continue;
    }
    if (now - guest.started_ns > allowed) guest.connection->Shutdown();
    ++at;
  }
  return guests_.empty() ? -1 : kSweepMs;
}

}  // namespace netprobe
