#include "rgpu_client/shim/program.h"

#include <errno.h>

#include <algorithm>
#include <array>

#include "rgpu_common/native/base/text.h"

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
  std::string line;
  if (!base::ReadText("/proc/self/cmdline", kMostBytes, &line)) line.clear();
  const std::vector<std::string> words = base::Pieces(line, '\0');
  const std::string name = ProgramName({words.begin(), words.end()});
  return name.empty() ? program_invocation_short_name : name;
}

}  // namespace rgpu::shim
