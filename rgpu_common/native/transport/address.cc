#include "rgpu_common/native/transport/address.h"

#include <errno.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace rgpu::transport {
namespace {

// The port of an address without one. rgpu_common/endpoints.py has the same default.
constexpr const char* kDefaultPort = "7700";

bool IsHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// The number of characters at the start of `text` that `is` accepts.
template <typename Is>
size_t CountOf(std::string_view text, Is is) {
  return static_cast<size_t>(std::ranges::find_if_not(text, is) - text.begin());
}

// True if an access token of `rgpu token new` stands at the start of `text`.
bool BeginsWithToken(std::string_view text) {
  constexpr std::string_view kMark = "rgpu_";
  constexpr size_t kIdDigits = 12;
  if (!text.starts_with(kMark)) return false;
  text.remove_prefix(kMark.size());
  if (CountOf(text.substr(0, kIdDigits), IsHex) != kIdDigits) return false;
  text.remove_prefix(kIdDigits);
  return text.size() > 1 && text.front() == '_' && IsWord(text[1]);
}

// True if a JSON Web Token, three words with dots between them, stands at the start of `text`.
bool BeginsWithJwt(std::string_view text) {
  constexpr size_t kLeastHeader = 7;
  if (!text.starts_with("eyJ") || CountOf(text, IsWord) < kLeastHeader) return false;
  for (int dot = 0; dot < 2; ++dot) {
    text.remove_prefix(CountOf(text, IsWord));
    if (text.size() < 2 || text[0] != '.' || !IsWord(text[1])) return false;
    text.remove_prefix(1);
  }
  return true;
}

void Fail(ConnectError* why, int error, std::string sentence) {
  if (why != nullptr) *why = {error, std::move(sentence)};
}

}  // namespace

// As _SECRET of rgpu_common/endpoints.py.
bool HoldsSecret(std::string_view uri) {
  if (uri.starts_with("unix:") || uri.starts_with("shm:")) return false;
  if (uri.find('@') != std::string_view::npos) return true;
  for (; !uri.empty(); uri.remove_prefix(1)) {
    if (BeginsWithToken(uri) || BeginsWithJwt(uri)) return true;
  }
  return false;
}

std::string NoAddressSentence(const std::string& text) {
  return "'" + text +
         "' is not a server address: write HOST:PORT, [IPV6]:PORT, tcp:HOST:PORT, "
         "tls:HOST:PORT, ucx:HOST:PORT, unix:/PATH or shm:/PATH";
}

std::string Completed(const std::string& address) {
  const bool bare = address.find(':') == std::string::npos || address.ends_with(']');
  const bool host = !address.empty() && address.find_first_of("/; \t") == std::string::npos;
  return bare && host ? address + ":" + kDefaultPort : address;
}

bool Split(const std::string& address, bool may_be_zero, HostPort* out) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  out->host = address.substr(0, colon);
  out->port = address.substr(colon + 1);
  if (out->host.front() == '[') {
    if (out->host.size() < 3 || out->host.back() != ']') return false;
    out->host = out->host.substr(1, out->host.size() - 2);
  } else if (out->host.find(':') != std::string::npos) {
    return false;
  }
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (out->port.empty() || out->port.size() > 5 ||
      !std::all_of(out->port.begin(), out->port.end(), digit)) {
    return false;
  }
  const int number = std::stoi(out->port);
  return number >= (may_be_zero ? 0 : 1) && number <= 65535;
}

std::unique_ptr<addrinfo, void (*)(addrinfo*)> Resolve(const std::string& address,
                                                       ConnectError* why, bool may_be_zero) {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(nullptr, &freeaddrinfo);
  HostPort parts;
  if (!Split(address, may_be_zero, &parts)) {
    Fail(why, 0, NoAddressSentence(address));
    return list;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (code == 0) {
    list.reset(found);
  } else {
    Fail(why, EHOSTUNREACH,
         "the host name '" + parts.host + "' cannot be resolved (" + gai_strerror(code) +
             "): correct the address (--server or RGPU_SERVER) or the name service");
  }
  return list;
}

}  // namespace rgpu::transport
