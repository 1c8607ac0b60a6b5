// A transport as the gateway sees it: it makes a Connection and an introduction of what was
// accepted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/gateway/figures.h"

namespace rgpu::gateway {

// Who has come, before anything is agreed on.
struct Arrival {
  base::UniqueFd socket;
  int door = -1;
  std::string peer;
};

class Terminal {
 public:
  virtual ~Terminal() = default;
  // Takes keys and certificates from these open files: the certificate, its key, and who signs
  // clients' certificates, if they are asked for any.  False: `why`, and the old ones stay.
  virtual bool Reload(std::vector<base::UniqueFd> files, std::string* why) = 0;
  // Takes one of those who wait at `door`.  Invalid: nobody.  The socket stands for the guest;
  // shutting it down sends the guest away.
  virtual base::UniqueFd Accept(int door, std::string* peer);
  // Takes nobody new.
  virtual void Close() {}
  // Agrees with the client who has come, within the time.  Null: `refusal` says why it did not
  // come about.  `preface` has transport and peer already.
  virtual std::unique_ptr<transport::Connection> Welcome(Arrival arrival, int timeout_ms,
                                                         wire::Preface* preface,
                                                         Refusal* refusal) = 0;
};

}  // namespace rgpu::gateway
