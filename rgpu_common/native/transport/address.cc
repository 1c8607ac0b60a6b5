#include "rgpu_common/native/transport/address.h"

#include <errno.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace rgpu::transport {
namespace {

// The port of an address without one. rgpu_common/endpoints.py has the same default.
constexpr const char* kDefaultPort = "7700";

bool IsHex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// The number of characters at the start of `text` that `is` accepts.
template <typename Is>
size_t CountOf(std::string_view text, Is is) {
  return static_cast<size_t>(std::ranges::find_if_not(text, is) - text.begin());
}

// True if `word`, which is in lower case, stands at the start of `text` in any case.
bool BeginsWith(std::string_view text, std::string_view word) {
  const auto same = [](unsigned char a, char b) { return std::tolower(a) == b; };
  return std::ranges::equal(text.substr(0, word.size()), word, same);
}

// True if an access token of `rgpu token new` stands at the start of `text`.
bool BeginsWithToken(std::string_view text) {
  constexpr std::string_view kMark = "rgpu_";
  constexpr size_t kIdDigits = 12;
  if (!BeginsWith(text, kMark)) return false;
  text.remove_prefix(kMark.size());
  if (CountOf(text.substr(0, kIdDigits), IsHex) != kIdDigits) return false;
  text.remove_prefix(kIdDigits);
  return text.size() > 1 && text.front() == '_' && IsWord(text[1]);
}

// True if the credential of a claim stands at the start of `text`: JSON that is written as base64.
bool BeginsWithClaim(std::string_view text) { return text.starts_with("rgpuc1.eyJ"); }

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

// True if a secret that is named stands at the start of `text`.
bool BeginsWithNamed(std::string_view text) {
  constexpr std::string_view kNames[] = {"token=", "password=", "secret="};
  return std::ranges::any_of(kNames, [&](auto name) { return BeginsWith(text, name); });
}

// True if `uri` has what separates an address from a secret in other programs' addresses.
bool HasMark(std::string_view uri) {
  constexpr std::string_view kInNoHostPort = "@?#=";
  if (!uri.starts_with("unix:") && !uri.starts_with("shm:")) {
    return uri.find_first_of(kInNoHostPort) != std::string_view::npos;
  }
  const std::string_view path = uri.substr(uri.find(':') + 1);
  if (path.find('?') != std::string_view::npos) return true;
  const size_t at = path.rfind('@');
  if (at == std::string_view::npos) return false;
  // Folders have names such as user@1000.service.
  const std::string_view before = path.substr(0, at);
  return !before.starts_with('/') || before.starts_with("//") ||
         before.find(':') != std::string_view::npos;
}

}  // namespace

// refuse_secret of rgpu_common/endpoints.py has the same rules.
bool HoldsSecret(std::string_view uri) {
  if (HasMark(uri)) return true;
  for (; !uri.empty(); uri.remove_prefix(1)) {
    if (BeginsWithToken(uri) || BeginsWithClaim(uri)) return true;
    if (BeginsWithJwt(uri) || BeginsWithNamed(uri)) return true;
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
    NotConnected(why, 0, NoAddressSentence(address));
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
    NotConnected(why, EHOSTUNREACH,
                 "the host name '" + parts.host + "' cannot be resolved (" + gai_strerror(code) +
                     "): correct the address (--server or RGPU_SERVER) or the name service");
  }
  return list;
}

}  // namespace rgpu::transport
