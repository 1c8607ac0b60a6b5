#include "rgpu_server/gateway/ucx_terminal.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/address.h"
#include "rgpu_common/native/transport/ucx/ucx_connection.h"
#include "rgpu_server/gateway/peer.h"
#include "rgpu_server/gateway/threads.h"

namespace rgpu::gateway {
namespace {

namespace ucx = transport::ucx;

constexpr size_t kMostWaiting = 256;
// How often a greeting that is waited for is seen to have been given up.
constexpr int kLookMs = 250;
constexpr int kEndPollMs = 1000;

bool IsUp(int socket) {
  pollfd look{socket, 0, 0};
  return poll(&look, 1, 0) == 0;
}

}  // namespace

bool UcxTerminal::Open(std::string* why) {
  const ucx::Api& api = engine_.api;
  ucx::WorkerParams params{};
  params.field_mask = ucx::WorkerParams::kThreadMode;
  params.thread_mode = ucx::kThreadSerialized;
  ucx::Status status = api.ucp_worker_create(engine_.context, &params, &worker_);
  if (status == ucx::kOk) status = api.ucp_worker_get_efd(worker_, &events_);
  door_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  if (status != ucx::kOk) {
    *why = std::string("UCX makes no worker: ") + api.ucs_status_string(status);
    return false;
  }
  Thread thread;
  const bool started = door_.valid() && thread.Start([this] { Listening(); });
  if (started) thread.Detach();
  if (!started) *why = "the system gives no thread or no descriptor";
  return started;
}

bool UcxTerminal::Listen(const std::string& address, int* port, std::string* why) {
  transport::ConnectError error;
  // A port of 0 asks for a free one.
  const auto found = transport::Resolve(address, &error, /*may_be_zero=*/true);
  if (found == nullptr) {
    *why = error.sentence;
    return false;
  }
  const ucx::Api& api = engine_.api;
  const std::lock_guard lock(mutex_);
  auto entrance = std::make_unique<Entrance>(Entrance{this, nullptr});
  ucx::ListenerParams params{};
  params.field_mask = ucx::ListenerParams::kSocketAddress | ucx::ListenerParams::kConnHandler;
  params.socket_address = {found->ai_addr, found->ai_addrlen};
  params.conn_handler = {&OnRequest, entrance.get()};
  ucx::Status status = api.ucp_listener_create(worker_, &params, &entrance->listener);
  ucx::ListenerFacts facts{};
  facts.field_mask = ucx::ListenerFacts::kSocketAddress;
  if (status == ucx::kOk) status = api.ucp_listener_query(entrance->listener, &facts);
  if (status != ucx::kOk) {
    *why = "UCX cannot listen on " + address + ": " + api.ucs_status_string(status);
    return false;
  }
  *port = PortOf(facts.address);
  entrances_.push_back(std::move(entrance));
  // What was armed before knows nothing of this listener.
  while (!Arm()) Progress();
  return true;
}

base::UniqueFd UcxTerminal::door() const { return base::UniqueFd(dup(door_.get())); }

void UcxTerminal::OnRequest(ucx::ConnRequest* request, void* data) {
  const auto* entrance = static_cast<Entrance*>(data);
  UcxTerminal& self = *entrance->terminal;
  if (self.queue_.size() >= kMostWaiting || self.closed_) {
    self.engine_.api.ucp_listener_reject(entrance->listener, request);
    return;
  }
  self.queue_.push_back({request, entrance->listener, base::UniqueFd()});
  const uint64_t one = 1;
  if (write(self.door_.get(), &one, sizeof one) < 0) self.closed_ = true;
}

void UcxTerminal::Progress() {
  while (engine_.api.ucp_worker_progress(worker_) != 0) {
  }
}

bool UcxTerminal::Arm() { return engine_.api.ucp_worker_arm(worker_) != ucx::kBusy; }

void UcxTerminal::Listening() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      Progress();
      if (!Arm()) continue;
    }
    pollfd wait{events_, POLLIN, 0};
    poll(&wait, 1, kEndPollMs);
  }
}

base::UniqueFd UcxTerminal::Accept(int door, std::string* peer) {
  uint64_t one = 0;
  if (read(door, &one, sizeof one) != sizeof one) return {};
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return {};
  Request next = std::move(queue_.front());
  queue_.pop_front();
  ucx::ConnRequestFacts facts{};
  facts.field_mask = ucx::ConnRequestFacts::kClientAddress;
  const bool known = engine_.api.ucp_conn_request_query(next.request, &facts) == ucx::kOk;
  *peer = known ? PeerOf(facts.client) : "unknown";
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    engine_.api.ucp_listener_reject(next.listener, next.request);
    return {};
  }
  next.other = base::UniqueFd(ends[1]);
  accepted_.emplace(ends[0], std::move(next));
  return base::UniqueFd(ends[0]);
}

std::unique_ptr<transport::Connection> UcxTerminal::Welcome(Arrival arrival, int timeout_ms,
                                                            wire::Preface*, Refusal* refusal) {
  const base::UniqueFd socket = std::move(arrival.socket);
  const base::Deadline deadline(timeout_ms);
  auto connection = ucx::UcxConnection::Make(engine_, /*guarded=*/false, &refusal->why);
  refusal->reason = Reason::kHandshake;
  {
    const std::lock_guard lock(mutex_);
    const auto found = accepted_.find(socket.get());
    if (found == accepted_.end()) return nullptr;
    ucx::ConnRequest* request = found->second.request;
    if (connection == nullptr) engine_.api.ucp_listener_reject(found->second.listener, request);
    // Kept until the guest is in: the socket's other end.
    if (connection == nullptr || !connection->Take(request)) {
      accepted_.erase(found);
      return nullptr;
    }
  }
  bool agreed = false;
  while (!agreed && connection->status() == ucx::kOk && !deadline.passed() && IsUp(socket.get())) {
    agreed = connection->Agree(std::min(kLookMs, deadline.left_ms()));
  }
  const std::lock_guard lock(mutex_);
  accepted_.erase(socket.get());
  if (agreed) return connection;
  if (connection->status() != ucx::kOk) refusal->why = connection->LostReason();
  if (deadline.passed()) refusal->reason = Reason::kLate;
  // Sent away to make room, and counted as that.
  if (!IsUp(socket.get())) refusal->reason = Reason::kNobody;
  return nullptr;
}

void UcxTerminal::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const Request& request : queue_) {
    engine_.api.ucp_listener_reject(request.listener, request.request);
  }
  queue_.clear();
  for (const auto& entrance : entrances_) engine_.api.ucp_listener_destroy(entrance->listener);
  entrances_.clear();
}

}  // namespace rgpu::gateway
