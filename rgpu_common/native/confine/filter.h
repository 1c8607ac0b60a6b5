// A filter of system calls (seccomp). The first rule that names a call decides. The two Install
// functions differ in what happens to calls that no rule names.
#pragma once

#include <linux/filter.h>

#include <initializer_list>
#include <span>
#include <vector>

#include "rgpu_common/native/confine/rule.h"

namespace rgpu::confine {

class Report;

class Filter {
 public:
  Filter();

  void Allow(int call) { Answer(call, kAllowCall); }
  void Refuse(int call) { Answer(call, kRefuseCall); }
  // Allows the call if the argument has one of these values, and else refuses it.
  void AllowIf(int call, unsigned int argument, std::initializer_list<unsigned int> values);
  // Refuses the call if the argument has one of these values, and else allows it.
  void RefuseIf(int call, unsigned int argument, std::initializer_list<unsigned int> values);

  // Allows starting threads, and refuses starting processes.
  void OnlyThreads();
  // Allows reading this process's limits, and refuses setting them. With `lowers_memory`,
  // RLIMIT_DATA may be set as well: raising it again takes a capability.
  void OnlyReadsLimits(bool lowers_memory = false);
  // Allows `call` only if its first argument names this process. 0 names this process, too.
  void OnlyItself(int call);
  // Allows setting the priority of this process, and refuses that of other processes, groups and
  // users.
  void OnlyItsPriority();
  // Refuses setting the owner of a descriptor. The kernel sends the owner a signal, which may be
  // SIGKILL, when bytes arrive.
  void NoOwners();
  // Allows only sockets that must be connected before they carry bytes: AF_UNIX streams and
  // SOCK_SEQPACKET. A datagram socket can send without connecting.
  void OnlyUnixStreams();

  // Installs the filter. Calls that no rule names are allowed. False: errno says why it failed.
  bool InstallElseAllow();
  // Installs the filter. Calls that no rule names are refused with EPERM. Calls newer than this
  // list get ENOSYS, because C libraries then use an older call.
  bool InstallElseRefuse();

 private:
  void Answer(int call, unsigned int answer);
  void Decide(int call, unsigned int argument, std::initializer_list<unsigned int> values,
              To if_listed, To if_not);
  void Return(unsigned int answer);
  bool Install();

  std::vector<sock_filter> program_;
};

// Allows the calls that every process with threads needs: memory, threads, waits, time, its own
// signals, exit.
void AllowComputing(Filter* filter);
// Allows sending and receiving on sockets that exist already, and accepting connections.
void AllowOpenSockets(Filter* filter);

}  // namespace rgpu::confine
