// Many probes at a time, bounded: a thread for each, places, time and bytes for each peer.
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
  // Per peer: how many probes at once after a pause, and in the long run.
  double burst_probes = 256;
  double probes_per_second = 20;
  double burst_bytes = 2e9;
  double bytes_per_second = 128e6;
  rgpu::probe::Limits each = {};
};

// Who asked how often, so that one peer does not use up the responder.  Knows the clock only by
// what it is told.
class PeerBook {
 public:
  explicit PeerBook(const Bounds& bounds) : bounds_(bounds) {}
  // False: too many probes of this peer.
  bool Open(const std::string& peer, uint64_t now_ns);
  // Negative: what was charged and not used.
  bool Charge(const std::string& peer, int64_t bytes, uint64_t now_ns);
  size_t size() const { return peers_.size(); }

 private:
  struct Account {
    double probes = 0;
    double bytes = 0;
    uint64_t at_ns = 0;
  };
  Account& Find(const std::string& peer, uint64_t now_ns);
  void Forget(uint64_t now_ns);

  const Bounds bounds_;
  std::map<std::string, Account> peers_;
};

class Responder {
 public:
  Responder(rgpu::probe::Offer offer, Bounds bounds);
  ~Responder();  // ends every probe
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // Serves a connected stream socket, or turns it away.  `head`: the PROBE that somebody has read
  // from it; empty: it is still to come.
  void Take(rgpu::base::UniqueFd socket, const std::string& peer, std::vector<uint8_t> head);
  // Ends probes that are over time and clears away those that are done.  Returns in how many
  // milliseconds to call it again, -1: when there is a new probe.
  int Sweep();
  size_t active() const { return guests_.size(); }
  // Readable when a probe has ended.
  int ended_fd() const { return ended_.get(); }

 private:
  struct Guest;
  bool MakeRoom(const std::string& peer);
  void Serve(Guest* guest);

  const rgpu::probe::Offer offer_;
  const Bounds bounds_;
  std::mutex mutex_;  // of book_
  PeerBook book_;
  std::list<std::unique_ptr<Guest>> guests_;
  rgpu::base::UniqueFd ended_;
};

}  // namespace netprobe
