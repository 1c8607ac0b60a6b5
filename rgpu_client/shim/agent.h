// The socket to the path agent (rgpu_client/session/watch.py), a process beside the program. The
// agent measures the paths and may tell the session to move to another one.
//
// RGPU_AGENT names a Unix socket (SOCK_SEQPACKET) of text messages:
//   agent -> shim  MOVE URI      the session is to move to this path
//   shim -> agent  MOVED URI | STAYED URI REASON
//   agent -> shim  STATS?
//   shim -> agent  STATS calls=N bulk_bytes=N syncs=N path=URI
#pragma once

#include <string>
#include <string_view>

namespace rgpu::shim {

class Session;

class Agent {
 public:
  // Connects to the agent and starts a thread that answers its messages. False: the session runs
  // without an agent.
  bool Start(Session* session, const std::string& path);
  // Called in a forked child: closes the child's copy of the socket and sends nothing.
  void Abandon();

 private:
  static void Run(void* agent);
  std::string Answer(std::string_view message);

  Session* session_ = nullptr;
  int socket_ = -1;
};

}  // namespace rgpu::shim
