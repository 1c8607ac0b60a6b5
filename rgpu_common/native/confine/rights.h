// Takes rights away from a process that reads bytes from tenants or unauthenticated peers.
//
// Every function acts on the calling thread and on all threads that it starts later. A measure that
// the machine does not allow is entered into a Report, and the process continues. The daemon
// decides whether the remaining measures are enough (rgpu_server/core/isolation.py).
#pragma once

#include <sys/resource.h>

#include <string>
#include <string_view>
#include <vector>

namespace rgpu::confine {

// The names of the measures. The daemon and operators' configurations use the same names.
inline constexpr const char* kNetworkNamespace = "network-namespace";
inline constexpr const char* kOwnUser = "own-user";
inline constexpr const char* kLandlock = "landlock";
inline constexpr const char* kNoNewPrivileges = "no-new-privileges";
inline constexpr const char* kCapabilities = "capabilities";
inline constexpr const char* kNotInspectable = "not-inspectable";
inline constexpr const char* kLimits = "limits";
inline constexpr const char* kSystemCalls = "system-calls";
inline constexpr const char* kSandbox = "sandbox";

// The missing measures, as one line: "MEASURE: reason; MEASURE: reason".
class Report {
 public:
  void Lacks(const char* measure, std::string_view why);
  // Adds a measure whose `call` failed with `error`, as "EPERM from unshare".
  void Refused(const char* measure, const char* call, int error);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Lowers the soft and the hard limit to at most `most`.
void Limit(__rlimit_resource_t what, rlim_t most, const char* name, Report* report);

// Changes to a user that no other process has, because processes of one user can signal and inspect
// each other. Only root can change its user. False: the process keeps its user.
bool DropUser(Report* report);

void DropCapabilities(Report* report);

// Forbids new privileges for this process and every program it starts. Also keeps other processes
// of its user from inspecting it.
void ForbidGains(Report* report);

// The access that remains allowed for files opened by path.
enum class Files {
  kNone,      // none
  kReadOnly,  // reading
  kDevices,   // reading, writing below /dev, and naming the process's own threads
};
// `readable`: folders and files that can be read although `files` is kNone.
void RestrictFiles(Files files, Report* report, const std::vector<std::string>& readable = {});

}  // namespace rgpu::confine
