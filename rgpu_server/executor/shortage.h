// The sentence that the client's stderr gets when an allocation is refused: once per session.
#pragma once

#include <cstdint>
#include <string>

#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_server/executor/ledger.h"

namespace rgpu::exec {

class Shortage {
 public:
  // lease: its name, empty where the client named none.
  void Name(const std::string& lease) { lease_ = lease; }
  // The lease has no room for `asked` bytes.
  void LeaseIsFull(const Ledger& ledger, uint64_t asked, transport::Outbox& outbox);
  // The lease has room, and the device itself does not.
  void DeviceIsFull(const Ledger& ledger, uint64_t asked, transport::Outbox& outbox);

 private:
  std::string LeaseName() const;
  void Say(const std::string& sentence, transport::Outbox& outbox);

  std::string lease_;
  bool said_ = false;
};

}  // namespace rgpu::exec
