// Accepts clients, lets a Terminal agree with them and a Service carry them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_server/gateway/control.h"
#include "rgpu_server/gateway/guests.h"
#include "rgpu_server/gateway/service.h"
#include "rgpu_server/gateway/terminal.h"

namespace rgpu::gateway {

struct Limits {
  int handshake_ms = 10000;
  unsigned int handshakes = 128;  // at once
  unsigned int connections = 1024;
};

class Gateway {
 public:
  Gateway(Terminal& terminal, Service& service, const Control& control, std::string transport,
          Limits limits, Figures* figures);

  // Accepts on `listeners`, which it owns, until the daemon is gone; then until the last connection
  // has ended.
  void Run(std::vector<base::UniqueFd> listeners);

 private:
  // Returns false when the daemon is gone.
  bool Serve(const std::vector<base::UniqueFd>& listeners);
  bool HearDaemon();
  // Says the figures, at most once a second and only if they have changed.  Returns in how many
  // milliseconds to look again, -1: when somebody comes.
  int Report();
  void Accept(int listener);
  void Attend(Arrival arrival, uint64_t guest);

  Terminal& terminal_;
  Service& service_;
  const Control& control_;
  const std::string transport_;
  const Limits limits_;
  Guests guests_;
  std::atomic<unsigned int> connections_{0};  // also those that were sent away and still end
  Figures& figures_;
  std::string reported_;
  uint64_t reported_ns_ = 0;
};

}  // namespace rgpu::gateway
