#include "rgpu_server/gateway/relay_service.h"

#include <unistd.h>

#include "rgpu_server/gateway/relay.h"

namespace rgpu::gateway {
namespace {

// How long bytes may go to a client that has ended its own direction.
constexpr int kHalfClosedMs = 5000;

}  // namespace

void RelayService::Carry(transport::Connection& client, const wire::Preface& preface,
                         const std::function<void(bool)>& known) {
  base::UniqueFd socket = door_.Enter(preface);
  if (!socket.valid()) {
    figures_.Refused(Reason::kNoServer);
    client.EndSending();
    return;
  }
  const base::UniqueFd kept(dup(socket.get()));
  const auto inner = transport::Adopt(socket.release());
  if (inner == nullptr) return;
  Relay(client, *inner, kept.get(), kHalfClosedMs, &figures_, known);
}

}  // namespace rgpu::gateway
