// Makes a connection, and sends and receives its records.
#include "rgpu_common/native/transport/ucx/ucx_connection.h"

#include <errno.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/memory.h"

namespace rgpu::transport::ucx {

namespace {

constexpr size_t kLeastWindow = 4096;
constexpr size_t kMostWindow = 1U << 30;

base::UniqueFd EventFd() { return base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

UcxConnection::UcxConnection(const Engine& engine, bool guarded)
    : engine_(engine),
      api_(engine.api),
      guarded_(guarded),
      wake_(EventFd()),
      notices_{EventFd(), EventFd(), EventFd()},
      ring_(std::make_unique_for_overwrite<uint8_t[]>(kRingBytes)) {
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.data = std::make_unique_for_overwrite<uint8_t[]>(kSlotBytes);
  }
  for (Slot* slot : {&greeting_, &credit_, &end_, &bye_}) slot->owner = this;
}

std::unique_ptr<UcxConnection> UcxConnection::Make(const Engine& engine, bool guarded,
                                                   std::string* why) {
  std::unique_ptr<UcxConnection> made(new UcxConnection(engine, guarded));
  if (!made->wake_.valid() || !made->notices_[2].valid()) {
    *why = "no descriptor is left for the connection: raise the limit of open files (ulimit -n)";
    return nullptr;
  }
  WorkerParams params{};
  params.field_mask = WorkerParams::kThreadMode;
  params.thread_mode = kThreadSerialized;
  Status status = engine.api.ucp_worker_create(engine.context, &params, &made->worker_);
  if (status == kOk) status = engine.api.ucp_worker_get_efd(made->worker_, &made->events_);
  if (status == kOk) return made;
  *why = std::string("UCX makes no worker (") + engine.api.ucs_status_string(status) +
         "): raise the limit of open files (ulimit -n), or of locked memory (ulimit -l) for RDMA";
  return nullptr;
}

UcxConnection::~UcxConnection() {
  // In a forked child, UCX's locks may be held by threads that exist only in the parent.
  if (!abandoned_) Close();
}

bool UcxConnection::Create(EndpointParams* params) {
  params->field_mask |= EndpointParams::kErrorMode | EndpointParams::kErrorHandler;
  params->error_mode = kErrorModePeer;
  params->error_handler = {&OnError, this};
  const Status status = api_.ucp_ep_create(worker_, params, &endpoint_);
  if (status != kOk) {
    endpoint_ = nullptr;
    Lose(status);
    return false;
  }
  Greet();
  return true;
}

bool UcxConnection::Reach(const sockaddr* address, socklen_t bytes) {
  const std::lock_guard lock(mutex_);
  EndpointParams params{};
  params.field_mask = EndpointParams::kFlags | EndpointParams::kSocketAddress;
  params.flags = kEndpointClientServer;
  params.socket_address = {address, bytes};
  return Create(&params);
}

bool UcxConnection::Take(ConnRequest* request) {
  const std::lock_guard lock(mutex_);
  EndpointParams params{};
  params.field_mask = EndpointParams::kConnRequest;
  params.conn_request = request;
  return Create(&params);
}

void UcxConnection::Greet() { Say(&greeting_, Kind::kHello, kRingBytes); }

bool UcxConnection::Agree(int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      Progress();
      if (lost_) return false;
      // Wait until UCX has sent the greeting: perhaps no thread calls UCX for a while afterwards.
      if (agreed_ && !greeting_.busy) return true;
    }
    if (deadline.passed()) return false;
    Turn(deadline.left_ms());
  }
}

void UcxConnection::OnError(void* self, Endpoint*, Status status) {
  static_cast<UcxConnection*>(self)->Lose(status);
}

void UcxConnection::OnSent(void* request, Status status, void* data) {
  auto* slot = static_cast<Slot*>(data);
  slot->owner->api_.ucp_request_free(request);
  slot->busy = false;
  if (status != kOk) return slot->owner->Lose(status);
  if (slot == &slot->owner->credit_) slot->owner->GiveCredit();
}

void UcxConnection::OnReceived(void* request, Status status, size_t bytes, void* data) {
  auto* self = static_cast<UcxConnection*>(data);
  self->api_.ucp_request_free(request);
  self->receiving_ = false;
  if (status != kOk) return self->Lose(status);
  self->Took(bytes);
}

void UcxConnection::Lose(Status status, const char* reason) {
  if (lost_) return;
  lost_ = true;
  status_ = status;
  reason_ = *reason != '\0' ? reason : api_.ucs_status_string(status);
}

void UcxConnection::Progress() {
  if (worker_ == nullptr) return;
  do {
    Receive();
  } while (api_.ucp_worker_progress(worker_) != 0);
  Receive();
}

// Requests the next bytes, until a request has to wait for the peer.
void UcxConnection::Receive() {
  while (!receiving_ && !lost_ && endpoint_ != nullptr) {
    uint8_t* to = reinterpret_cast<uint8_t*>(&head_) + head_got_;
    size_t most = sizeof head_ - head_got_;
    if (body_left_ > 0) {
      const size_t at = (begin_ + held_) % kRingBytes;
      to = ring_.get() + at;
      most = std::min(body_left_, kRingBytes - at);
    }
    RequestParams params{};
    params.field_mask = RequestParams::kCallback | RequestParams::kUserData;
    params.call.received = &OnReceived;
    params.user_data = this;
    size_t bytes = 0;
    void* request = api_.ucp_stream_recv_nbx(endpoint_, to, most, &bytes, &params);
    if (request == nullptr) {
      Took(bytes);
    } else if (const Status status = FailureOf(request); status != kOk) {
      Lose(status);
    } else {
      receiving_ = true;
    }
  }
}

void UcxConnection::Took(size_t bytes) {
  if (body_left_ > 0) {
    body_left_ -= bytes;
    held_ += bytes;
    return;
  }
  head_got_ += bytes;
  if (head_got_ < sizeof head_) return;
  head_got_ = 0;
  Understand(head_);
}

void UcxConnection::Understand(const Head& head) {
  const auto kind = static_cast<Kind>(head.kind);
  const size_t value = head.value;
  const bool greeted = agreed_;
  if (kind == Kind::kHello && !greeted && value >= kLeastWindow && value <= kMostWindow) {
    room_ = value;
    agreed_ = true;
  } else if (kind == Kind::kData && greeted && !peer_ended_ && value > 0 &&
             value <= kRingBytes - held_) {
    body_left_ = value;
  } else if (kind == Kind::kCredit && greeted && value <= kMostWindow - room_) {
    room_ += value;
  } else if (kind == Kind::kEnd && greeted) {
    peer_ended_ = true;
  } else if (kind == Kind::kBye) {
    peer_ended_ = true;
    peer_left_ = true;
  } else {
    Lose(kConnectionReset, "the peer sent a record that breaks the protocol");
  }
}

void UcxConnection::Send(Slot* slot, const void* data, size_t bytes) {
  RequestParams params{};
  params.field_mask = RequestParams::kCallback | RequestParams::kUserData;
  params.call.sent = &OnSent;
  params.user_data = slot;
  const void* request = api_.ucp_stream_send_nbx(endpoint_, data, bytes, &params);
  if (request == nullptr) return;
  if (const Status status = FailureOf(request); status != kOk) return Lose(status);
  slot->busy = true;
}

void UcxConnection::Say(Slot* slot, Kind kind, size_t value) {
  if (lost_ || slot->busy || endpoint_ == nullptr) return;
  slot->head = {static_cast<uint32_t>(kind), static_cast<uint32_t>(value)};
  Send(slot, &slot->head, sizeof slot->head);
}

// Returns credit in a few large steps, because each step costs a record.
void UcxConnection::GiveCredit() {
  if (owed_ < kRingBytes / 4 || credit_.busy || lost_) return;
  Say(&credit_, Kind::kCredit, std::exchange(owed_, 0));
}

UcxConnection::Slot* UcxConnection::FreeSlot() {
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.busy; });
  return found == slots_.end() ? nullptr : &*found;
}

ssize_t UcxConnection::Gather(uint8_t* to, size_t room, const iovec* parts, int count) const {
  size_t bytes = 0;
  for (int i = 0; i < count && bytes < room; ++i) {
    const size_t some = std::min(parts[i].iov_len, room - bytes);
    if (some == 0) continue;
    if (!guarded_) {
      std::memcpy(to + bytes, parts[i].iov_base, some);
    } else if (!base::GuardedCopy(to + bytes, parts[i].iov_base, some)) {
      return bytes > 0 ? static_cast<ssize_t>(bytes) : -1;  // first send the bytes before it
    }
    bytes += some;
  }
  return static_cast<ssize_t>(bytes);
}

IoResult UcxConnection::Gone() const {
  if (!lost_ || closed_ || peer_left_) return {IoState::kClosed, 0, 0};
  return {IoState::kFailed, 0, status_ == kEndpointTimeout ? ETIMEDOUT : ECONNRESET};
}

IoResult UcxConnection::TrySend(const iovec* parts, int count) {
  if (closed_.load(std::memory_order_relaxed)) return {IoState::kClosed, 0, 0};
  const std::lock_guard lock(mutex_);
  if (room_ == 0 || FreeSlot() == nullptr) Progress();
  IoResult result{IoState::kWouldBlock, 0, 0};
  if (lost_ || ended_ || peer_left_) {
    result = Gone();
  } else if (Slot* slot = FreeSlot(); slot != nullptr && room_ > 0) {
    const size_t room = std::min(room_, kSlotBytes - sizeof(Head));
    const ssize_t bytes = Gather(slot->data.get() + sizeof(Head), room, parts, count);
    if (bytes < 0) {
      result = {IoState::kFault, 0, EFAULT};
    } else if (bytes > 0) {
      const Head head{static_cast<uint32_t>(Kind::kData), static_cast<uint32_t>(bytes)};
      std::memcpy(slot->data.get(), &head, sizeof head);
      room_ -= static_cast<size_t>(bytes);
      Send(slot, slot->data.get(), sizeof head + static_cast<size_t>(bytes));
      result = {IoState::kDone, static_cast<size_t>(bytes), 0};
    }
  }
  Settle();
  return result;
}

IoResult UcxConnection::CopyOut(uint8_t* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes && held_ > 0) {
    const size_t some = std::min({bytes - done, held_, kRingBytes - begin_});
    if (!guarded_) {
      std::memcpy(to + done, ring_.get() + begin_, some);
    } else if (!base::GuardedCopy(to + done, ring_.get() + begin_, some)) {
      if (done > 0) break;
      return {IoState::kFault, 0, EFAULT};
    }
    done += some;
    begin_ = (begin_ + some) % kRingBytes;
    held_ -= some;
    owed_ += some;
  }
  GiveCredit();
  return {IoState::kDone, done, 0};
}

IoResult UcxConnection::TryRecv(void* to, size_t bytes) {
  if (closed_.load(std::memory_order_relaxed)) return {IoState::kClosed, 0, 0};
  const std::lock_guard lock(mutex_);
  if (held_ == 0) Progress();
  IoResult result{IoState::kWouldBlock, 0, 0};
  if (held_ > 0) {
    result = CopyOut(static_cast<uint8_t*>(to), bytes);
  } else if (peer_ended_) {
    result = {IoState::kClosed, 0, 0};
  } else if (lost_) {
    result = Gone();
  }
  Settle();
  return result;
}

}  // namespace rgpu::transport::ucx
