#include "rgpu_common/native/base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "rgpu_common/native/base/text.h"

namespace rgpu::base {
namespace {

constexpr long kMilli = 1000;
constexpr size_t kMostFileBytes = 64U << 10;

std::string ReadAll(const std::string& path) {
  std::string text;
  return ReadText(path, kMostFileBytes, &text) ? text : std::string();
}

long Smaller(long a, long b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

// Parses "QUOTA PERIOD", or "max PERIOD" for no limit, to thousandths of a processor.
long FromQuota(const std::string& text) {
  long quota = 0;
  long period = 0;
  if (std::sscanf(text.c_str(), "%ld %ld", &quota, &period) != 2) return -1;
  if (quota <= 0 || period <= 0) return -1;
  return quota * kMilli / period;
}

// The smallest limit of a group and all its parents.
template <typename Limit>
long Smallest(const std::string& mount, std::string path, Limit limit) {
  long least = -1;
  for (;;) {
    least = Smaller(least, limit(mount + path));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

int AllowedCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // The call fails on a machine with more processors than cpu_set_t holds.
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return CPU_SETSIZE;
  return std::max(1, CPU_COUNT(&allowed));
}

}  // namespace

long CgroupMilliCpus(const std::string& group, const std::string& mount) {
  long least = -1;
  for (const std::string& line : Pieces(group, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {  // version 2 of control groups
      least = Smaller(least, Smallest(mount, path, [](const std::string& folder) {
                        return FromQuota(ReadAll(folder + "/cpu.max"));
                      }));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      least = Smaller(least, Smallest(mount + "/cpu", path, [](const std::string& folder) {
                        return FromQuota(ReadAll(folder + "/cpu.cfs_quota_us") + " " +
                                         ReadAll(folder + "/cpu.cfs_period_us"));
                      }));
    }
  }
  return least;
}

int UsableCpus() {
  static const long limit = CgroupMilliCpus(ReadAll("/proc/self/cgroup"), "/sys/fs/cgroup");
  const int allowed = AllowedCpus();
  if (limit < 0) return allowed;
  return std::max(1, std::min(allowed, static_cast<int>(limit / kMilli)));
}

}  // namespace rgpu::base
