// Takes rights away from a process that reads what strangers or tenants send.
//
// Every function works on the calling thread and on all threads that it starts later.  What the
// machine does not allow goes into a Report; the process goes on, and whoever started it decides
// whether that is enough (rgpu_server/core/isolation.py).
#pragma once

#include <sys/resource.h>

#include <string>
#include <string_view>

namespace rgpu::confine {

// The measures, by the names that the daemon knows and that an operator writes.
inline constexpr const char* kNetworkNamespace = "network-namespace";
inline constexpr const char* kOwnUser = "own-user";
inline constexpr const char* kLandlock = "landlock";
inline constexpr const char* kNoNewPrivileges = "no-new-privileges";
inline constexpr const char* kCapabilities = "capabilities";
inline constexpr const char* kNotInspectable = "not-inspectable";
inline constexpr const char* kLimits = "limits";
inline constexpr const char* kSystemCalls = "system-calls";
inline constexpr const char* kSandbox = "sandbox";

// Which measures are missing, as one line: "MEASURE: reason; MEASURE: reason".
class Report {
 public:
  void Lacks(const char* measure, std::string_view why);
  // `call` failed with `error`: "EPERM from unshare".
  void Refused(const char* measure, const char* call, int error);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Lowers soft and hard limit to at most `most`.
void Limit(__rlimit_resource_t what, rlim_t most, const char* name, Report* report);

// A user that no other process has: processes of one user can signal and inspect each other.  Only
// root can change its user; anybody else keeps the one it has.  False: the user was kept.
bool DropUser(Report* report);

void DropCapabilities(Report* report);

// No new privileges by any program, and no look into this process by others of its user.
void ForbidGains(Report* report);

// What may still be done with files that are opened by their path.
enum class Files {
  kNone,      // nothing
  kReadOnly,  // reading
  kDevices,   // reading, and writing below /dev
};
void RestrictFiles(Files files, Report* report);

}  // namespace rgpu::confine
