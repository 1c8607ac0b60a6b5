// The client's end of `ucx:`: tries the addresses, and makes the sentences for failures.
#include <errno.h>
#include <netdb.h>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/address.h"
#include "rgpu_common/native/transport/ucx/ucx_connection.h"

namespace rgpu::transport::ucx {
namespace {

std::string Sentence(const UcxConnection& connection, const std::string& address, int timeout_ms) {
  switch (connection.status()) {
    case kOk:
    case kTimedOut:
      return "the server at ucx:" + address + " did not answer within " +
             std::to_string(timeout_ms / 1000) +
             " s: check the address, and that both ends have a UCX transport in common (UCX_TLS)";
    case kUnreachable:
    case kRejected:
    case kNotConnected:
    case kConnectionReset:
      return "no program that speaks UCX answers at " + address + " (" + connection.LostReason() +
             "): start 'rgpu serve --listen ucx:" + address +
             "' there, or correct the address (--server or RGPU_SERVER)";
    default:
      return "the server at ucx:" + address + " cannot be reached (" + connection.LostReason() +
             "): check the address, the network and UCX's variables";
  }
}

}  // namespace

std::unique_ptr<Connection> ConnectUcx(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why) {
  std::string sentence;
  const Engine* engine = LoadUcx(&sentence);
  if (engine == nullptr) return NotConnected(why, ENOSYS, sentence);
  const base::Deadline deadline(options.timeout_ms);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found = Resolve(address, why);
  int left = 0;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) ++left;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next, --left) {
    auto connection = UcxConnection::Make(*engine, /*guarded=*/true, &sentence);
    if (connection == nullptr) return NotConnected(why, EMFILE, sentence);
    // A dead address gets only its part of the time, so that the others can be tried.
    const int rest = deadline.left_ms();
    if (connection->Reach(at->ai_addr, at->ai_addrlen) &&
        connection->Agree(rest < 0 ? -1 : rest / left)) {
      return connection;
    }
    const int error = connection->status() == kOk ? ETIMEDOUT : ECONNREFUSED;
    NotConnected(why, error, Sentence(*connection, address, options.timeout_ms));
  }
  return nullptr;
}

}  // namespace rgpu::transport::ucx
