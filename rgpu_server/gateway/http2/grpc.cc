#include "rgpu_server/gateway/http2/grpc.h"

#include <algorithm>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::gateway::http2 {
namespace {

constexpr size_t kMaxTextBytes = 500;
constexpr size_t kMaxTimeoutDigits = 8;
constexpr std::string_view kGrpc = "application/grpc";

// The encoding of `grpc-message` in gRPC's protocol.
std::string PercentEncoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text.substr(0, kMaxTextBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte <= '~' && c != '%') {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

// Returns a unit of `grpc-timeout` in nanoseconds, 0 if there is no such unit.
uint64_t UnitNs(char unit) {
  switch (unit) {
    case 'H':
      return 3600 * base::kSecond;
    case 'M':
      return 60 * base::kSecond;
    case 'S':
      return base::kSecond;
    case 'm':
      return base::kMillisecond;
    case 'u':
      return base::kMicrosecond;
    case 'n':
      return 1;
    default:
      return 0;
  }
}

}  // namespace

const Fields& AnswerFields() {
  static const auto& fields = *new Fields{{":status", "200"}, {"content-type", std::string(kGrpc)}};
  return fields;
}

Fields Trailers(const Status& status) {
  Fields fields{{"grpc-status", std::to_string(static_cast<int>(status.code))}};
  if (!status.text.empty()) fields.emplace_back("grpc-message", PercentEncoded(status.text));
  return fields;
}

Fields OnlyTrailers(const Status& status) {
  Fields fields = AnswerFields();
  std::ranges::move(Trailers(status), std::back_inserter(fields));
  return fields;
}

Fields NoGrpc(const Fields& request) {
  if (Value(request, ":method") != "POST") return {{":status", "405"}, {"allow", "POST"}};
  const std::string_view type = Value(request, "content-type");
  const bool grpc =
      type.starts_with(kGrpc) &&
      (type.size() == kGrpc.size() || type[kGrpc.size()] == '+' || type[kGrpc.size()] == ';');
  return grpc ? Fields{} : Fields{{":status", "415"}};
}

uint64_t TimeoutNs(std::string_view text) {
  if (text.size() < 2 || text.size() > kMaxTimeoutDigits + 1) return UINT64_MAX;
  uint64_t number = 0;
  for (const char digit : text.substr(0, text.size() - 1)) {
    if (digit < '0' || digit > '9') return UINT64_MAX;
    number = 10 * number + static_cast<uint64_t>(digit - '0');
  }
  const uint64_t unit = UnitNs(text.back());
  return unit == 0 ? UINT64_MAX : number * unit;
}

}  // namespace rgpu::gateway::http2
