// The sandbox of a Python worker.
#include <dirent.h>

#include <algorithm>
#include <cstring>

#include "rgpu_common/native/confine/sandbox.h"
#include "rgpu_common/native/native_worker_abi.h"

namespace {

uint32_t Threads() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  uint32_t count = 0;
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(tasks);
  return count;
}

}  // namespace

uint32_t rgpu_confine_worker(int needs_driver_files, const char* const* readable, char* report,
                             size_t report_bytes) {
  rgpu::confine::SandboxOptions options;
  options.needs_driver_files = needs_driver_files != 0;
  for (; *readable != nullptr; ++readable) options.readable.emplace_back(*readable);
  const uint32_t threads = Threads();
  const std::string missing = rgpu::confine::EnterSandbox(options);
  if (report_bytes == 0) return threads;
  const size_t size = std::min(missing.size(), report_bytes - 1);
  std::memcpy(report, missing.data(), size);
  report[size] = '\0';
  return threads;
}
