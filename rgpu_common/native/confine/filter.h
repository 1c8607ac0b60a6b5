// A filter of system calls (seccomp).  The first rule that names a call decides; `Install` says
// what becomes of calls that no rule names.
#pragma once

#include <linux/filter.h>

#include <initializer_list>
#include <span>
#include <vector>

namespace rgpu::confine {

class Report;

class Filter {
 public:
  Filter();

  void Allow(int call) { Answer(call, kAllow); }
  void Refuse(int call) { Answer(call, kRefuse); }
  // Allowed if the argument has one of these values, else refused.
  void AllowIf(int call, unsigned int argument, std::initializer_list<unsigned int> values);
  // Allowed if the argument has none of these bits, else refused.
  void AllowIfClear(int call, unsigned int argument, unsigned int bits);
  // Refused if the argument has one of these values, else allowed.
  void RefuseIf(int call, unsigned int argument, std::initializer_list<unsigned int> values);

  // Threads may be started, processes may not.
  void OnlyThreads();
  // Limits of this process may be read, none may be set; with `lowers_memory` only the one of its
  // memory (RLIMIT_DATA), which takes a capability to be raised again.
  void OnlyReadsLimits(bool lowers_memory = false);
  // `call` only about this process, which its first argument names; 0 is this process too.
  void OnlyItself(int call);
  // Priorities of other processes, of groups and of users are not touched.
  void OnlyItsPriority();
  // The owner of a descriptor gets a signal, which may be SIGKILL, when something comes.
  void NoOwners();
  // Sockets that carry nothing before they are connected: AF_UNIX streams.  A datagram socket
  // needs no connect to send.
  void OnlyUnixStreams();

  // From here on the filter holds.  False: errno says why it does not.
  bool InstallElseAllow();
  // Calls that no rule names are refused: with EPERM, or with ENOSYS if they are newer than this
  // list, since C libraries then have a second way.
  bool InstallElseRefuse();

 private:
  static const unsigned int kAllow;
  static const unsigned int kRefuse;

  void Answer(int call, unsigned int answer);
  void Decide(int call, unsigned int argument, std::initializer_list<unsigned int> values,
              unsigned int if_listed, unsigned int if_not);
  void Load(unsigned int argument, bool upper_half = false);
  void Return(unsigned int answer);
  bool Install();

  std::vector<sock_filter> program_;
};

// What every process with threads does: memory, threads, waits, time, its own signals, its end.
void AllowComputing(Filter* filter);
// Sending and receiving on sockets that are there or are accepted.
void AllowOpenSockets(Filter* filter);

}  // namespace rgpu::confine
