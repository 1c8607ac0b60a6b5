// Ends a connection at a set time. Every wait has a limit of its own, but a peer that sends one
// byte before each limit could otherwise hold the connection for days.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::probe {

class Watchdog {
 public:
  // Throws std::system_error if the thread cannot be started.
  Watchdog(transport::Connection* connection, int ms);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Sets the end to `ms` from now.
  void Set(int ms);
  // True if the watchdog has ended the connection.
  bool bitten() const { return bitten_; }

 private:
  void Watch();

  transport::Connection* connection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t at_ns_;
  bool over_ = false;
  std::atomic<bool> bitten_{false};
  std::thread thread_;
};

}  // namespace rgpu::probe
