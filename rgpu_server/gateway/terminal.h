// The gateway's interface to a transport: accepts sockets, and makes a Connection of each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_server/gateway/figures.h"

namespace rgpu::gateway {

// A socket that was accepted, before its handshake.
struct Arrival {
  base::UniqueFd socket;
  int door = -1;     // the listening socket
  std::string peer;  // the client's address
};

class Terminal {
 public:
  virtual ~Terminal() = default;
  // Reads the certificate, its key and, if clients must have certificates, the authorities that
  // sign these, from open files in this order.  False: `why` has the reason, and the terminal keeps
  // the certificate that it had.
  virtual bool Reload(std::vector<base::UniqueFd> files, std::string* why) = 0;
  // Accepts one connection from the listening socket `door`.  Invalid: none waits.  Shutting the
  // returned socket down ends the guest (guests.h).
  virtual base::UniqueFd Accept(int door, std::string* peer);
  // Accepts no more connections.
  virtual void Close() {}
  // Shakes hands with the client within `timeout_ms`.  Null: the handshake failed, and `refusal`
  // says why.  The caller has filled in the transport and the peer of `preface`; this function adds
  // what the handshake shows about the client.
  virtual std::unique_ptr<transport::Connection> Welcome(Arrival arrival, int timeout_ms,
                                                         wire::Preface* preface,
                                                         Refusal* refusal) = 0;
};

}  // namespace rgpu::gateway
