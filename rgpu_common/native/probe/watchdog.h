// Ends a connection at a set time.  Waits have limits of their own, but who sends a byte before
// each of them ends could go on for days.
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
  // Throws std::system_error: there is no thread for it.
  Watchdog(transport::Connection* connection, int ms);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The end is `ms` from now.
  void Set(int ms);
  // It has ended the connection.
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
