// Serves many probes at a time: a thread for each, and limits of places, time and bytes per peer.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/probe/session.h"

namespace netprobe {

struct Bounds {
  uint32_t places = 64;
  uint32_t places_per_peer = 32;
  // Per peer: how many probes at once after a pause, and per second in the long run.
  double burst_probes = 256;
  double probes_per_second = 20;
  double burst_bytes = 2e9;
  double bytes_per_second = 128e6;
  // All peers together may move this many times what one peer may move.
  double peers = 4;
  rgpu::probe::Limits each = {};

  // `rate`: bytes per second of all peers together. A burst may use 16 seconds' worth.
  void SetRate(double rate) {
    bytes_per_second = rate / peers;
    burst_bytes = 16 * bytes_per_second;
  }
};

// Accounts for the probes and bytes of each peer, and the bytes of all peers together. So neither
// one peer nor many can use up the server's network. The caller passes the time.
class PeerBook {
 public:
  explicit PeerBook(const Bounds& bounds)
      : bounds_(bounds), all_({0, bounds.peers * bounds.burst_bytes, 0}) {}
  // Returns false if this peer has opened too many probes.
  bool Open(const std::string& peer, uint64_t now_ns);
  // Takes `bytes` from what the peer, and all peers together, may move. If too little is left,
  // takes nothing and returns false.
  bool Charge(const std::string& peer, uint64_t bytes, uint64_t now_ns);
  // Returns bytes that were charged but not moved.
  void GiveBack(const std::string& peer, uint64_t bytes, uint64_t now_ns);
  size_t size() const { return peers_.size(); }

 private:
  struct Account {
    double probes = 0;
    double bytes = 0;
    uint64_t at_ns = 0;
  };
  Account& Find(const std::string& peer, uint64_t now_ns);
  // Adds what has become free since the account was last used; `times`: for how many peers.
  void Refill(Account* account, double times, uint64_t now_ns) const;
  void Forget(uint64_t now_ns);

  const Bounds bounds_;
  std::map<std::string, Account> peers_;
  Account all_;
};

class Responder {
 public:
  Responder(rgpu::probe::Offer offer, Bounds bounds);
  ~Responder();  // ends every probe
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // Serves a connected stream socket, or refuses it. `head`: the PROBE that another process has
  // read from it; empty if the PROBE is still to come.
  void Take(rgpu::base::UniqueFd socket, const std::string& peer, std::vector<uint8_t> head);
  // Ends probes that are over time and removes those that are done. Returns after how many
  // milliseconds to call it again; -1: not before there is a new probe.
  int Sweep();
  size_t active() const { return guests_.size(); }
  // Becomes readable when a probe has ended.
  int ended_fd() const { return ended_.get(); }

 private:
  struct Guest;
  bool MakeRoom(const std::string& peer);
  void Serve(Guest* guest);

  const rgpu::probe::Offer offer_;
  const Bounds bounds_;
  std::mutex mutex_;  // guards book_
  PeerBook book_;
  std::list<std::unique_ptr<Guest>> guests_;
  rgpu::base::UniqueFd ended_;
};

}  // namespace netprobe
