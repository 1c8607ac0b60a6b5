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

// Characters that are taken for others. first, last: the first and the last one; taken: what the
// first one is taken for, or 0 where they are not seen or separate words. _TAKEN_FOR in
// rgpu_common/endpoints.py is the same table.
struct TakenFor {
  char32_t first;
  char32_t last;
  char taken;
};
constexpr TakenFor kTakenFor[] = {
    {0xFF01, 0xFF5E, '!'},  // full width
    {0xFE13, 0xFE13, ':'}, {0xFE55, 0xFE55, ':'}, {0x2236, 0x2236, ':'}, {0xA789, 0xA789, ':'},
    {0xFE16, 0xFE16, '?'}, {0xFE56, 0xFE56, '?'}, {0xFE5F, 0xFE5F, '#'}, {0xFE66, 0xFE66, '='},
    {0xFE6A, 0xFE6A, '%'}, {0xFE6B, 0xFE6B, '@'}, {0x0000, 0x0020, 0},   {0x007F, 0x00A0, 0},
    {0x00AD, 0x00AD, 0},   {0x1680, 0x1680, 0},   {0x2000, 0x200F, 0},   {0x2028, 0x202F, 0},
    {0x205F, 0x206F, 0},   {0x3000, 0x3000, 0},   {0xFE00, 0xFE0F, 0},   {0xFEFF, 0xFEFF, 0},
};

// The size of an IPv6 address with a zone at the start of `text`, or 0. Its percent sign encodes
// nothing, and %40 is the 40th interface.
size_t SizeOfZoned(std::string_view text) {
  if (!text.starts_with('[')) return 0;
  const auto in_v6 = [](char c) { return IsHex(c) || c == ':' || c == '.'; };
  const std::string_view v6 = text.substr(1, CountOf(text.substr(1), in_v6));
  const std::string_view zone = text.substr(1 + v6.size());
  if (!zone.starts_with('%') || std::ranges::count(v6, ':') < 2) return 0;
  const size_t name = CountOf(zone.substr(1), [](char c) { return IsWord(c) || c == '.'; });
  if (name == 0 || !zone.substr(1 + name).starts_with(']')) return 0;
  return 1 + v6.size() + 1 + name + 1;
}

// Replaces an encoded byte at the end of `text` (%40) by the byte. False: there is none.
bool DecodeEnd(std::string* text) {
  const size_t size = text->size();
  if (size < 3 || (*text)[size - 3] != '%') return false;
  const std::string digits = text->substr(size - 2);
  if (CountOf(digits, IsHex) != digits.size()) return false;
  text->erase(size - 3);
  text->push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
  return true;
}

// Replaces a character at the end of `text` by what it is taken for. False: it is itself.
bool TakeEnd(std::string* text) {
  const auto byte = [&](size_t from_end) -> unsigned {
    return static_cast<unsigned char>((*text)[text->size() - from_end]);
  };
  size_t bytes = 1;  // of the character; those of four bytes are in no table
  while (bytes < 3 && bytes < text->size() && byte(bytes) >> 6 == 0b10) ++bytes;
  constexpr char32_t kLeast[] = {0, 0x80, 0x800};
  constexpr unsigned kLead[] = {0b0, 0b110, 0b1110};
  constexpr unsigned kLeadBits[] = {7, 5, 4};
  const unsigned lead_bits = kLeadBits[bytes - 1];
  if (byte(bytes) >> lead_bits != kLead[bytes - 1]) return false;
  char32_t code = byte(bytes) & ((1U << lead_bits) - 1);
  for (size_t at = bytes - 1; at > 0; --at) code = code << 6 | (byte(at) & 0x3FU);
  if (code < kLeast[bytes - 1]) return false;
  for (const auto& [first, last, taken] : kTakenFor) {
    if (code < first || code > last) continue;
    text->erase(text->size() - bytes);
    if (taken != 0) text->push_back(static_cast<char>(taken + static_cast<int>(code - first)));
    return true;
  }
  return false;
}

// The text without what hides a secret from a rule and from no reader: percent-encoding, however
// often, look-alikes of other scripts, and blanks.
std::string AsRead(std::string_view text) {
  std::string read;
  while (!text.empty()) {
    const size_t zoned = SizeOfZoned(text);
    read += zoned > 0 ? "[]" : text.substr(0, 1);
    text.remove_prefix(std::max<size_t>(zoned, 1));
    while (DecodeEnd(&read) || (!read.empty() && TakeEnd(&read))) {
    }
  }
  return read;
}

bool HoldsPlainSecret(std::string_view uri) {
  if (HasMark(uri)) return true;
  for (; !uri.empty(); uri.remove_prefix(1)) {
    if (BeginsWithToken(uri) || BeginsWithClaim(uri)) return true;
    if (BeginsWithJwt(uri) || BeginsWithNamed(uri)) return true;
  }
  return false;
}

}  // namespace

// refuse_secret of rgpu_common/endpoints.py has the same rules.
bool HoldsSecret(std::string_view uri) {
  return HoldsPlainSecret(uri) || HoldsPlainSecret(AsRead(uri));
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
