#include "rgpu_client/shim/program.h"

#include <errno.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

namespace rgpu::shim {
namespace {

constexpr std::array<std::string_view, 8> kInterpreters = {"python", "pypy", "ipython", "julia",
                                                           "perl",   "ruby", "node",    "Rscript"};
constexpr size_t kMostBytes = 16U << 10;

std::string_view WithoutFolder(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool IsInterpreter(std::string_view name) {
  return std::ranges::any_of(kInterpreters, [name](std::string_view known) {
    const std::string_view rest = name.substr(std::min(known.size(), name.size()));
    return name.starts_with(known) &&
           rest.find_first_not_of("0123456789.") == std::string_view::npos;
  });
}

}  // namespace

std::string ProgramName(const std::vector<std::string_view>& words) {
  if (words.empty()) return {};
  std::string name(WithoutFolder(words.front()));
  if (!IsInterpreter(name)) return name;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "-c" || word == "-") return name + " " + std::string(word);
    if (word == "-m") {
      return i + 1 < words.size() ? name + " -m " + std::string(words[i + 1]) : name;
    }
    if (word == "-W" || word == "-X") {
      ++i;  // the option's value
    } else if (!word.starts_with('-') && !word.empty()) {
      return name + " " + std::string(WithoutFolder(word));
    }
  }
  return name;
}

std::string OwnProgramName() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line(kMostBytes, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  std::vector<std::string_view> words;
  for (std::string_view rest = line; !rest.empty();) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    words.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::string name = ProgramName(words);
  return name.empty() ? program_invocation_short_name : name;
}

}  // namespace rgpu::shim
