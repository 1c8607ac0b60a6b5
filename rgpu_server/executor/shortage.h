// The sentence for the client's stderr when an allocation is refused; sent once per session.
#pragma once

#include <cstdint>
#include <string>

#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/ledger.h"

namespace rgpu::exec {

class Shortage {
 public:
  // lease: its name, empty if the client named none.
  void Name(const std::string& lease) { lease_ = lease; }
  // The lease has no room for `asked` bytes.
  void LeaseIsFull(const Ledger& ledger, uint64_t asked, transport::Outbox& outbox);
  // The lease has room, but the device has not.
  void DeviceIsFull(const Ledger& ledger, uint64_t asked, transport::Outbox& outbox);
  // A pool holds `held` bytes and may not hold `asked` more, by the maximum that the program set.
  void PoolIsFull(uint64_t held, uint64_t maximum, uint64_t asked, transport::Outbox& outbox);

 private:
  std::string LeaseName() const;
  void Say(const std::string& sentence, transport::Outbox& outbox);

  std::string lease_;
  bool said_ = false;
};

}  // namespace rgpu::exec
