#include "rgpu_common/native/transport/outbox.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::transport {
namespace {

constexpr int kParts = 64;
// How often a thread that waits for the peer checks whether the outbox was closed.
constexpr int kLookMs = 100;

std::chrono::milliseconds Ms(int timeout_ms) { return std::chrono::milliseconds(timeout_ms); }

}  // namespace

Outbox::Outbox(Connection* connection, Limits limits) : connection_(connection), limits_(limits) {}

Outbox::~Outbox() {
  Close();
  if (writer_.joinable()) writer_.join();
}

bool Outbox::Post(const FrameBuffer& frames, bool hold, uint64_t behind) {
  if (frames.empty()) return true;
  const std::lock_guard lock(mutex_);
  const uint8_t* data = frames.data();
  size_t size = frames.size();
  if (!hold && !slow_ && !closed_ && queue_.empty()) {
    // The usual case: send without a copy.
    const iovec part{const_cast<uint8_t*>(data), size};
    const IoResult result = connection_->TrySend(&part, 1);
    if (result.ok()) {
      data += result.bytes;
      size -= result.bytes;
    }
    if (size == 0) {
      if (connection_->HasOutput()) WriteNow();
      return true;
    }
  }
  Item item;
  item.bytes.assign(data, data + size);
  return Append(std::move(item), hold, behind);
}

bool Outbox::PostBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk,
                      std::shared_ptr<const void> keep, uint64_t number) {
  Item item;
  if (!item.Fill(header, head, bulk)) return false;
  item.keep = std::move(keep);
  item.number = number;
  const std::lock_guard lock(mutex_);
  return Append(std::move(item), false);
}

bool Outbox::SendBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk) {
  Item item;
  if (!item.Fill(header, head, bulk)) return false;
  item.number = kEverything;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || queued_ < limits_.soft_bytes; });
  if (closed_) return false;
  Enqueue(std::move(item));
  WriteQueued(lock);
  return !closed_;
}

// Builds header and head; the bulk is not copied. False: a length exceeds its limit.
bool Outbox::Item::Fill(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView data) {
  if (head.size > wire::kMaxHeadBytes || data.size > wire::kMaxBulkBytes) return false;
  wire::FrameHeader whole = header;
  whole.payload_bytes = head.size + data.size;
  whole.bulk_bytes = data.size;
  bytes.reserve(sizeof whole + head.size);
  wire::Writer writer(&bytes);
  writer.PutRaw(&whole, sizeof whole);
  writer.PutRaw(head.data, head.size);
  bulk = data;
  return true;
}

void Outbox::Enqueue(Item item, uint64_t behind) {
  queued_ += item.size();
  if (item.bulk.size > 0) ++bulk_queued_;
  auto place = queue_.end();
  if (behind != kEverything && connection_->free_order()) {
    // The first item cannot be overtaken once part of it has been sent.
    const auto first = queue_.begin() + (sent_of_front_ > 0 ? 1 : 0);
    while (place > first && std::prev(place)->number > behind) --place;
  }
  queue_.insert(place, std::move(item));
}

void Outbox::WriteQueued(std::unique_lock<std::mutex>& lock) {
  const uint64_t target = bulk_queued_;
  while (!Sent(target)) {
    if (helped_) {
      changed_.wait(lock, [&] { return Sent(target) || !helped_; });
    } else {
      Help(lock, target);
    }
  }
}

void Outbox::Help(std::unique_lock<std::mutex>& lock, uint64_t target) {
  base::Deadline idle(limits_.idle_timeout_ms);
  helped_ = true;
  for (WriteNow(); !Sent(target); WriteNow()) {
    lock.unlock();
    const int ready = connection_->Wait(kWritable, kLookMs);
    lock.lock();
    if (ready != 0) idle = base::Deadline(limits_.idle_timeout_ms);
    if (idle.passed()) CloseLocked();
  }
  helped_ = false;
  if (slow_) StartWriter();
  changed_.notify_all();
}

bool Outbox::Append(Item item, bool hold, uint64_t behind) {
  if (closed_) return false;
  if (queued_ + item.size() > limits_.hard_bytes) {
    CloseLocked();
    return false;
  }
  Enqueue(std::move(item), behind);
  if (!hold && !slow_) WriteNow();
  return !closed_;
}

void Outbox::Flush() {
  const std::lock_guard lock(mutex_);
  if (!closed_ && !slow_) WriteNow();
}

int Outbox::Gather(iovec* parts, int limit) const {
  int count = 0;
  size_t skip = sent_of_front_;
  const auto add = [&](const uint8_t* data, size_t size) {
    const size_t cut = std::min(skip, size);
    skip -= cut;
    if (size > cut && count < limit) {
      parts[count++] = {const_cast<uint8_t*>(data) + cut, size - cut};
    }
  };
  for (const Item& item : queue_) {
    if (count + 2 > limit) break;
    add(item.bytes.data(), item.bytes.size());
    add(item.bulk.data, item.bulk.size);
  }
  return count;
}

void Outbox::Consume(size_t bytes) {
  queued_ -= bytes;
  sent_of_front_ += bytes;
  while (!queue_.empty() && sent_of_front_ >= queue_.front().size()) {
    sent_of_front_ -= queue_.front().size();
    if (queue_.front().bulk.size > 0) ++bulk_sent_;
    queue_.pop_front();
  }
}

void Outbox::WriteNow() {
  const size_t before = queued_;
  const bool was_slow = slow_;
  while (!queue_.empty() && !closed_) {
    iovec parts[kParts];
    const IoResult result = connection_->TrySend(parts, Gather(parts, kParts));
    if (result.ok()) {
      Consume(result.bytes);
    } else if (result.state == IoState::kWouldBlock) {
      slow_ = true;
      break;
    } else {
      CloseLocked();
    }
  }
  // Bytes that the connection has taken but not sent (HasOutput) also need a thread that waits.
  if (queue_.empty()) slow_ = connection_->HasOutput();
  if (slow_ && !helped_ && !closed_) StartWriter();
  if (queued_ != before || slow_ || was_slow) changed_.notify_all();
}

void Outbox::StartWriter() {
  work_.notify_one();
  if (writer_.joinable()) return;
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // the program's own threads handle its signals
  writer_ = std::thread(&Outbox::Run, this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Outbox::Run() {
  std::unique_lock lock(mutex_);
  base::Deadline idle(limits_.idle_timeout_ms);
  while (!closed_) {
    if (!slow_ || helped_) {
      work_.wait(lock, [this] { return (slow_ && !helped_) || closed_; });
      idle = base::Deadline(limits_.idle_timeout_ms);
      continue;
    }
    lock.unlock();
    const int ready = connection_->Wait(kWritable, kLookMs);
    lock.lock();
    if (ready != 0 && slow_ && !helped_) {
      WriteNow();
      idle = base::Deadline(limits_.idle_timeout_ms);
    } else if (idle.passed()) {
      CloseLocked();
    }
  }
}

bool Outbox::WaitRoom(int timeout_ms) {
  std::unique_lock lock(mutex_);
  const auto room = [this] { return closed_ || queued_ < limits_.soft_bytes; };
  if (timeout_ms < 0) {
    changed_.wait(lock, room);
  } else if (!changed_.wait_for(lock, Ms(timeout_ms), room)) {
    return false;
  }
  return !closed_;
}

bool Outbox::Drain(int timeout_ms) {
  std::unique_lock lock(mutex_);
  if (!closed_ && !slow_) WriteNow();
  const auto sent = [this] { return closed_ || (queue_.empty() && !slow_); };
  if (timeout_ms < 0) {
    changed_.wait(lock, sent);
  } else if (!changed_.wait_for(lock, Ms(timeout_ms), sent)) {
    return false;
  }
  return !closed_;
}

void Outbox::Close() {
  const std::lock_guard lock(mutex_);
  if (!closed_) CloseLocked();
}

void Outbox::CloseLocked() {
  closed_ = true;
  slow_ = false;
  if (!queue_.empty() || connection_->HasOutput()) connection_->Shutdown();
  queue_.clear();
  queued_ = 0;
  sent_of_front_ = 0;
  changed_.notify_all();
  work_.notify_all();
}

bool Outbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

size_t Outbox::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

}  // namespace rgpu::transport
