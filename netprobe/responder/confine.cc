#include "netprobe/responder/confine.h"

#include <sys/syscall.h>

#include <cerrno>

#include "rgpu_common/native/confine/filter.h"
#include "rgpu_common/native/confine/rights.h"

namespace netprobe {
namespace {

namespace confine = rgpu::confine;

constexpr rlim_t kMaxDescriptors = 512;
// The largest file: the memory that a ring lies in is the only file that the responder creates.
constexpr rlim_t kMaxRingBytes = 64 << 20;

// The responder moves bytes between sockets that it has or accepts, and creates memory for a ring.
// It opens no file, starts no program, looks at no process and connects to nothing.
bool AllowCalls() {
  confine::Filter filter;
  confine::AllowComputing(&filter);
  confine::AllowOpenSockets(&filter);
  filter.Allow(SYS_memfd_create);
  filter.Allow(SYS_ftruncate);
  return filter.InstallElseRefuse();
}

}  // namespace

std::string Confine() {
  confine::Report report;
  confine::Limit(RLIMIT_CORE, 0, "core dumps", &report);
  confine::Limit(RLIMIT_FSIZE, kMaxRingBytes, "files", &report);
  confine::Limit(RLIMIT_NOFILE, kMaxDescriptors, "open files", &report);
  confine::DropUser(&report);
  confine::DropCapabilities(&report);
  confine::ForbidGains(&report);
  if (!AllowCalls()) report.Refused(confine::kSystemCalls, "seccomp", errno);
  return report.text();
}

}  // namespace netprobe
