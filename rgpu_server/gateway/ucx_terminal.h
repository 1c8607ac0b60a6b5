// The server's end of `ucx:`.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rgpu_common/native/transport/ucx/ucp.h"
#include "rgpu_server/gateway/terminal.h"

namespace rgpu::gateway {

// UCX listens itself: it takes no socket that somebody else has bound.  Who comes stands in a queue
// until Accept, and is a socket pair to the gateway, which ends it as it ends a socket.
class UcxTerminal final : public Terminal {
 public:
  explicit UcxTerminal(const transport::ucx::Engine& engine) : engine_(engine) {}

  // Listens at IP:PORT, [V6]:PORT, and appends the port, which is a free one for 0.  Open first.
  bool Open(std::string* why);
  bool Listen(const std::string& address, int* port, std::string* why);
  // Readable as long as somebody stands in the queue.
  base::UniqueFd door() const;

  bool Reload(std::vector<base::UniqueFd>, std::string*) override { return true; }
  base::UniqueFd Accept(int door, std::string* peer) override;
  std::unique_ptr<transport::Connection> Welcome(Arrival arrival, int timeout_ms,
                                                 wire::Preface* preface, Refusal* refusal) override;
  void Close() override;

 private:
  struct Request {
    transport::ucx::ConnRequest* request;
    transport::ucx::Listener* listener;
    base::UniqueFd other;  // its end is held open as long as it waits
  };
  struct Entrance {
    UcxTerminal* terminal;
    transport::ucx::Listener* listener;
  };

  static void OnRequest(transport::ucx::ConnRequest* request, void* entrance);
  void Listening();
  // With mutex_.
  void Progress();
  bool Arm();

  const transport::ucx::Engine& engine_;
  std::mutex mutex_;  // for UCX's listeners and what comes through them
  transport::ucx::Worker* worker_ = nullptr;
  int events_ = -1;
  base::UniqueFd door_;
  std::vector<std::unique_ptr<Entrance>> entrances_;
  std::deque<Request> queue_;
  std::map<int, Request> accepted_;
  bool closed_ = false;
};

}  // namespace rgpu::gateway
