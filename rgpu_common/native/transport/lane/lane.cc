#include "rgpu_common/native/transport/lane/lane.h"

#include <mutex>
#include <utility>

namespace rgpu::transport {

Lane::Lane(std::unique_ptr<Connection> link, const LaneOptions& options, LaneWatcher* watcher)
    : options_(options),
      link_(std::move(link), options, watcher),
      readers_(options_, progress_, link_),
      receiver_(options_, progress_, link_, readers_),
      sender_(options_, progress_, link_, receiver_),
      wait_(options_, progress_, link_, readers_, receiver_, sender_) {}

Lane::~Lane() = default;

void Lane::StartRecords(wire::ByteView ahead) {
  receiver_.StartRecords(ahead);
  link_.UpdateChecksMemory();
  records_ = true;
}

IoResult Lane::TrySend(const iovec* parts, int count) {
  if (!records_) return sender_.plain_link().TrySend(parts, count);
  return sender_.TrySend(parts, count);
}

IoResult Lane::Receive(void* to, size_t bytes, How how) {
  if (!records_) return receiver_.plain_link().TryRecv(to, bytes);
  const IoResult result = receiver_.Receive(to, bytes, how);
  if (progress_.ack_due) sender_.Flush();
  return result.ok() || result.state == IoState::kFault ? result : link_.Verdict();
}

// Blocks in the link's Recv, which is one system call. A try, a wait and another try would be
// three.
IoResult Lane::Recv(void* to, size_t bytes, int timeout_ms) {
  if (!records_) return receiver_.plain_link().Recv(to, bytes, timeout_ms);
  if (timeout_ms >= 0) return Connection::Recv(to, bytes, timeout_ms);
  for (;;) {
    const bool block = readers_.BeginBlocking();
    const IoResult result = Receive(to, bytes, block ? How::kBlock : How::kTry);
    if (block) readers_.EndBlocking();
    if (result.state != IoState::kWouldBlock) return result;
    if (!block) Wait(kReadable, -1);
  }
}

int Lane::Wait(int events, int timeout_ms) {
  if (!records_) return link_.current()->Wait(events, timeout_ms);
  return wait_.Wait(events, timeout_ms);
}

AttachState Lane::Attach(std::unique_ptr<Connection>& link, uint32_t epoch, uint64_t received,
                         const std::function<bool(Connection&, uint64_t)>& greet) {
  const AttachState state = link_.Displace(epoch, received, progress_.promised);
  if (state != AttachState::kAttached) return state;
  {
    const std::lock_guard receiving(receiver_.mutex());
    const std::lock_guard sending(sender_.mutex());
    if (!link_.StillNewer(epoch)) return AttachState::kStale;
    receiver_.Rewind();
    // Without a greeting, the peer knows only what was taken when the link was requested. More may
    // have been taken since, and the peer may wait for that acknowledgement.
    sender_.Rewind(received, !greet);
    const bool greeted = !greet || greet(*link, progress_.received);
    const AttachState entered = link_.Enter(link, epoch, sender_.bytes_to_resend());
    if (entered != AttachState::kAttached) return entered;
    const std::shared_ptr<Connection> present = link_.current();
    receiver_.SetLink(present);
    sender_.SetLink(present);
    if (!greeted) present->Shutdown();
  }
  link_.AnnounceLink();
  sender_.Flush();
  return AttachState::kAttached;
}

void Lane::Shutdown() {
  const bool had_link = link_.End(LaneLink::Phase::kClosed, "");
  if (had_link && records_) sender_.SayEnd();
  link_.current()->Shutdown();
}

}  // namespace rgpu::transport
