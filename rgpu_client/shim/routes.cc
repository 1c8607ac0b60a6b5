#include "rgpu_client/shim/routes.h"

#include "rgpu_client/shim/units.h"
#include "rgpu_common/native/base/text.h"

namespace rgpu::shim {
namespace {

constexpr uint64_t kMostNumber = 1023;
constexpr size_t kBeforeUris = 3;  // NAME, AGENT, TUNNEL

}  // namespace

std::string DeviceName::text() const {
  return std::to_string(number) + (server.empty() ? "" : "@" + server);
}

std::optional<DeviceName> ParseDeviceName(const std::string& text) {
  const size_t at = text.find('@');
  uint64_t number = 0;
  if (!ParseWhole(text.substr(0, at), 0, kMostNumber, &number)) return std::nullopt;
  DeviceName name{static_cast<int32_t>(number), {}};
  if (at == std::string::npos) return name;
  name.server = text.substr(at + 1);
  if (name.server.empty()) return std::nullopt;
  return name;
}

Route RouteTo(const std::string& server, const std::string& lines) {
  for (const std::string& line : base::Pieces(lines, '\n')) {
    const std::vector<std::string> fields = base::Pieces(line, ';');
    if (fields.size() <= kBeforeUris || fields[0] != server) continue;
    Route route{fields[kBeforeUris], {}, fields[1], !fields[2].empty()};
    route.others.assign(fields.begin() + kBeforeUris + 1, fields.end());
    return route;
  }
  return {server, {}, {}, false};
}

std::string TokenFileOf(const std::string& server, const std::string& list) {
  for (const std::string& entry : base::Pieces(list, ';')) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos && entry.substr(0, equals) == server) {
      return entry.substr(equals + 1);
    }
  }
  return {};
}

}  // namespace rgpu::shim
