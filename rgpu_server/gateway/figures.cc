#include "rgpu_server/gateway/figures.h"

namespace rgpu::gateway {
namespace {

// By Reason; the daemon knows them by these names (figures.py).
constexpr const char* kNames[] = {"",          "late",     "not_tls",  "certificate",
                                  "handshake", "too_many", "no_server"};
static_assert(std::size(kNames) == static_cast<size_t>(Reason::kNoServer) + 1);

}  // namespace

std::string Figures::Line() const {
  std::string line = "open=" + std::to_string(open) + " received=" + std::to_string(received) +
                     " sent=" + std::to_string(sent);
  for (size_t i = 1; i < refused_.size(); ++i) {
    line += std::string(" ") + kNames[i] + "=" + std::to_string(refused_[i]);
  }
  return line;
}

}  // namespace rgpu::gateway
