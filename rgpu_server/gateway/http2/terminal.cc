#include "rgpu_server/gateway/http2/terminal.h"

#include <algorithm>
#include <utility>

namespace rgpu::gateway::http2 {

bool HttpTerminal::Reload(std::vector<base::UniqueFd> files, std::string* why) {
  if (tls_ != nullptr) return tls_->Reload(std::move(files), why);
  *why = "this gateway has no grpcs: address, so it needs no certificates";
  return false;
}

std::unique_ptr<transport::Connection> HttpTerminal::Welcome(Arrival arrival, int timeout_ms,
                                                             wire::Preface* preface,
                                                             Refusal* refusal) {
  if (std::ranges::find(tls_doors_, arrival.door) != tls_doors_.end()) {
    return tls_->Welcome(std::move(arrival), timeout_ms, preface, refusal);
  }
  return transport::Adopt(arrival.socket.release());
}

}  // namespace rgpu::gateway::http2
