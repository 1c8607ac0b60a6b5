#include "rgpu_emu/device/archive.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace rgpu::emu {
namespace {

constexpr std::string_view kMagic = "!<arch>\n";
constexpr std::string_view kHeaderEnd = "`\n";
constexpr size_t kHeaderBytes = 60;
constexpr size_t kNameBytes = 16;
constexpr size_t kSizeAt = 48;
constexpr size_t kSizeBytes = 10;

std::string_view Trimmed(std::string_view field) {
  return field.substr(0, field.find_last_not_of(' ') + 1);
}

bool ReadNumber(std::string_view field, size_t* value) {
  const std::string_view digits = Trimmed(field);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value);
  return error == std::errc() && end == digits.data() + digits.size();
}

// A name ends with a slash. `/12` is the offset of a longer name in the table of names.
std::string MemberName(std::string_view name, std::string_view table) {
  size_t at = 0;
  if (name.size() > 1 && name[0] == '/' && ReadNumber(name.substr(1), &at)) {
    name = at < table.size() ? table.substr(at) : std::string_view();
  }
  return std::string(name.substr(0, std::min(name.find_first_of("/\n"), name.size())));
}

}  // namespace

std::vector<std::string> MembersOfArchive(std::span<const uint8_t> archive) {
  std::string_view rest(reinterpret_cast<const char*>(archive.data()), archive.size());
  std::vector<std::string> members;
  if (!rest.starts_with(kMagic)) return members;
  rest.remove_prefix(kMagic.size());
  std::string_view table;
  while (rest.size() >= kHeaderBytes) {
    const std::string_view header = rest.substr(0, kHeaderBytes);
    size_t bytes = 0;
    if (!header.ends_with(kHeaderEnd) || !ReadNumber(header.substr(kSizeAt, kSizeBytes), &bytes)) {
      return {};
    }
    rest.remove_prefix(kHeaderBytes);
    if (bytes > rest.size()) return {};
    const std::string_view name = Trimmed(header.substr(0, kNameBytes));
    if (name == "//") {
      table = rest.substr(0, bytes);
    } else if (name != "/" && name != "/SYM64/") {  // those are tables of symbols
      members.push_back(MemberName(name, table));
    }
    rest.remove_prefix(std::min(rest.size(), bytes + bytes % 2));
  }
  return members;
}

}  // namespace rgpu::emu
