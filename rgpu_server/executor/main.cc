// rgpu-worker: executes the commands of one session on a device library.
//
//   rgpu-worker --control-fd N --library PATH [--no-sandbox]      started by the daemon
//   rgpu-worker --serve-fd N --library PATH                       one session, for development
//   rgpu-worker --listen unix:/path|tcp:ADDRESS:PORT --library PATH
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rgpu_common/native/base/cpus.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/confine/rights.h"
#include "rgpu_common/native/confine/sandbox.h"
#include "rgpu_common/native/transport/zip/zstd.h"
#include "rgpu_server/executor/modes.h"
#include "rgpu_server/executor/printed.h"

namespace {

using rgpu::exec::Options;

constexpr char kUsage[] =
    "usage: rgpu-worker (--control-fd N | --serve-fd N [--control-lane-fd N] | --listen URI)\n"
    "                   --library PATH [--memory BYTES] [--graph-nodes N] [--no-sandbox]\n";

// Returns false if `name` is unknown, or the value is missing or invalid.
bool SetOption(Options* options, const char* name, const char* value) {
  if (value == nullptr) return false;
  if (std::strcmp(name, "--library") == 0) {
    options->library = value;
    return true;
  }
  if (std::strcmp(name, "--listen") == 0) {
    options->listen = value;
    return true;
  }
  char* end = nullptr;
  const unsigned long long number = std::strtoull(value, &end, 0);
  if (end == value || *end != '\0') return false;
  if (std::strcmp(name, "--memory") == 0) {
    options->memory_bytes = number;
    return true;
  }
  if (std::strcmp(name, "--graph-nodes") == 0) {
    options->graph_nodes = number;
    return true;
  }
  if (number > 1'000'000) return false;
  const int fd = static_cast<int>(number);
  if (std::strcmp(name, "--control-fd") == 0)
    options->control_fd = fd;
  else if (std::strcmp(name, "--serve-fd") == 0)
    options->serve_fd = fd;
  else if (std::strcmp(name, "--control-lane-fd") == 0)
    options->control_lane_fd = fd;
  else
    return false;
  return true;
}

bool ReadOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-sandbox") == 0) {
      options->sandbox = false;
    } else if (!SetOption(options, argv[i], i + 1 < argc ? argv[i + 1] : nullptr)) {
      return false;
    } else {
      ++i;
    }
  }
  const int ways = (options->control_fd >= 0) + (options->serve_fd >= 0) + !options->listen.empty();
  return ways == 1 && !options->library.empty();
}

}  // namespace

int main(int argc, char** argv) {
  rgpu::base::StartLog("worker");
  Options options;
  if (!ReadOptions(argc, argv, &options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  // An interrupt from the terminal is for the daemon, which then ends its workers in order.
  std::signal(SIGINT, SIG_IGN);
  rgpu::confine::CloseOtherDescriptors(
      {options.control_fd, options.serve_fd, options.control_lane_fd});
  rgpu::exec::Driver driver;
  std::string sentence;
  if (!rgpu::exec::LoadDriver(options.library, &driver, &sentence)) {
    rgpu::base::Log(rgpu::base::Level::kError, "%s", sentence.c_str());
    return 2;
  }
  rgpu::exec::CapturePrinted(driver);
  // These read files, which the sandbox forbids later.
  rgpu::base::UsableCpus();
  rgpu::transport::zip::LoadZstd(nullptr);
  if (options.control_fd < 0) return rgpu::exec::RunForDevelopment(options, driver);
  std::string report = std::string(rgpu::confine::kSandbox) + ": it is switched off";
  if (options.sandbox)
    report = rgpu::confine::EnterSandbox({.needs_driver_files = !driver.emulated});
  return rgpu::exec::RunForDaemon(options, driver, report);
}
