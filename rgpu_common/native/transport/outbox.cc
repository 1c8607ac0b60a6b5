#include "rgpu_common/native/transport/outbox.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::transport {
namespace {

constexpr int kParts = 64;
// The writer looks this often whether it was closed while the peer takes nothing.
constexpr int kLookMs = 100;

std::chrono::milliseconds Ms(int timeout_ms) { return std::chrono::milliseconds(timeout_ms); }

}  // namespace

Outbox::Outbox(Connection* connection, Limits limits) : connection_(connection), limits_(limits) {}

Outbox::~Outbox() {
  Close();
  if (writer_.joinable()) writer_.join();
}

bool Outbox::Post(const FrameBuffer& frames, bool hold) {
  if (frames.empty()) return true;
  const std::lock_guard lock(mutex_);
  const uint8_t* data = frames.data();
  size_t size = frames.size();
  if (!hold && !slow_ && !closed_ && queue_.empty()) {
    // The usual case: straight out, without a copy.
    const iovec part{const_cast<uint8_t*>(data), size};
    const IoResult result = connection_->TrySend(&part, 1);
    if (result.ok()) {
      data += result.bytes;
      size -= result.bytes;
    }
    if (size == 0) return true;
  }
  Item item;
  item.bytes.assign(data, data + size);
  return Append(std::move(item), hold);
}

bool Outbox::PostBulk(const wire::FrameHeader& header, wire::ByteView head, wire::ByteView bulk,
                      std::shared_ptr<const void> keep) {
  if (head.size > wire::kMaxHeadBytes || bulk.size > wire::kMaxBulkBytes) return false;
  wire::FrameHeader whole = header;
  whole.payload_bytes = head.size + bulk.size;
  whole.bulk_bytes = bulk.size;
  Item item;
  wire::Writer writer(&item.bytes);
  writer.PutRaw(&whole, sizeof whole);
  writer.PutRaw(head.data, head.size);
  item.bulk = bulk;
  item.keep = std::move(keep);
  const std::lock_guard lock(mutex_);
  return Append(std::move(item), false);
}

bool Outbox::Append(Item item, bool hold) {
  if (closed_) return false;
  if (queued_ + item.size() > limits_.hard_bytes) {
    CloseLocked();
    return false;
  }
  queued_ += item.size();
  queue_.push_back(std::move(item));
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
    queue_.pop_front();
  }
}

void Outbox::WriteNow() {
  const size_t before = queued_;
  while (!queue_.empty() && !closed_) {
    iovec parts[kParts];
    const IoResult result = connection_->TrySend(parts, Gather(parts, kParts));
    if (result.ok()) {
      Consume(result.bytes);
    } else if (result.state == IoState::kWouldBlock) {
      slow_ = true;
      StartWriter();
      break;
    } else {
      CloseLocked();
    }
  }
  if (queue_.empty()) slow_ = false;
  if (queued_ != before || slow_) changed_.notify_all();
}

void Outbox::StartWriter() {
  if (writer_.joinable()) return;
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // signals are for the threads of the program
  writer_ = std::thread(&Outbox::Run, this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Outbox::Run() {
  std::unique_lock lock(mutex_);
  base::Deadline idle(limits_.idle_timeout_ms);
  while (!closed_) {
    if (!slow_) {
      changed_.wait(lock, [this] { return slow_ || closed_; });
      idle = base::Deadline(limits_.idle_timeout_ms);
      continue;
    }
    lock.unlock();
    const int ready = connection_->Wait(kWritable, kLookMs);
    lock.lock();
    if (ready != 0 && !closed_) {
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
  const auto sent = [this] { return closed_ || queue_.empty(); };
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
  if (!queue_.empty()) connection_->Shutdown();
  queue_.clear();
  queued_ = 0;
  sent_of_front_ = 0;
  changed_.notify_all();
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
