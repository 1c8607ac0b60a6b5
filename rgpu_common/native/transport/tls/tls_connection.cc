#include "rgpu_common/native/transport/tls/tls_connection.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/memory.h"

namespace rgpu::transport::tls {
namespace {

constexpr size_t kRecordBytes = 16U << 10;
// The most bytes that one call encrypts or decrypts.
constexpr size_t kChunkBytes = 4 * kRecordBytes;
// The result of a BIO callback that moved no bytes.
constexpr int kNoBio = -1;

}  // namespace

TlsConnection::TlsConnection(const Api& api, Ssl* ssl, std::unique_ptr<Connection> link,
                             bool guarded)
    : api_(api),
      ssl_(ssl),
      link_(std::move(link)),
      guarded_(guarded),
      out_(std::make_unique_for_overwrite<uint8_t[]>(kChunkBytes)) {
  if (guarded_) in_ = std::make_unique_for_overwrite<uint8_t[]>(kChunkBytes);
  Bio* bio = api_.BIO_new(Methods(api_));
  api_.BIO_set_data(bio, this);
  api_.BIO_set_init(bio, 1);
  api_.SSL_set_bio(ssl_, bio, bio);
}

TlsConnection::~TlsConnection() {
  // In a forked child, OpenSSL's locks may be held by threads that exist only in the parent.
  if (abandoned_) return;
  if (const Use use; use) api_.SSL_free(ssl_);
}

const BioMethod* TlsConnection::Methods(const Api& api) {
  static const BioMethod* methods = [&api] {
    BioMethod* made = api.BIO_meth_new(api.BIO_get_new_index() | kBioTypeSource, "rgpu");
    api.BIO_meth_set_write(made, &BioWrite);
    api.BIO_meth_set_read(made, &BioRead);
    api.BIO_meth_set_ctrl(made, &BioControl);
    return made;
  }();
  return methods;
}

int TlsConnection::BioWrite(Bio* bio, const char* data, int bytes) {
  std::string ignored;
  const Api& api = *LoadOpenSsl(&ignored);
  auto* self = static_cast<TlsConnection*>(api.BIO_get_data(bio));
  api.BIO_clear_flags(bio, kBioRead | kBioWrite | kBioRetry);
  const iovec part{const_cast<char*>(data), static_cast<size_t>(bytes)};
  const IoResult sent = self->link_->TrySend(&part, 1);
  if (sent.ok()) return static_cast<int>(sent.bytes);
  if (sent.state == IoState::kWouldBlock) {
    api.BIO_set_flags(bio, kBioWrite | kBioRetry);
  } else {
    self->link_state_ = sent;
  }
  return kNoBio;
}

int TlsConnection::BioRead(Bio* bio, char* to, int bytes) {
  std::string ignored;
  const Api& api = *LoadOpenSsl(&ignored);
  auto* self = static_cast<TlsConnection*>(api.BIO_get_data(bio));
  api.BIO_clear_flags(bio, kBioRead | kBioWrite | kBioRetry);
  const IoResult got = self->link_->TryRecv(to, static_cast<size_t>(bytes));
  if (got.ok()) return static_cast<int>(got.bytes);
  if (got.state == IoState::kWouldBlock) {
    api.BIO_set_flags(bio, kBioRead | kBioRetry);
    return kNoBio;
  }
  self->link_state_ = got;
  return 0;
}

long TlsConnection::BioControl(Bio*, int command, long, void*) {
  return command == kBioFlush ? 1 : 0;  // BioWrite keeps nothing back, so a flush succeeds
}

bool TlsConnection::Handshake(int timeout_ms, bool* timed_out) {
  const base::Deadline deadline(timeout_ms);
  *timed_out = false;
  for (;;) {
    int wants = 0;
    {
      const Use use;
      const std::lock_guard lock(mutex_);
      if (closed_ || !use) return false;
      api_.ERR_clear_error();
      const int result = api_.SSL_do_handshake(ssl_);
      if (result == 1) return true;
      if (Failure(result, &wants).state != IoState::kWouldBlock) return false;
    }
    if (link_->Wait(wants, deadline.left_ms()) == 0) {
      *timed_out = true;
      return false;
    }
  }
}

IoResult TlsConnection::Failure(int result, int* wants) {
  switch (api_.SSL_get_error(ssl_, result)) {
    case kErrorWantRead:
      *wants = kReadable;
      return {IoState::kWouldBlock, 0, 0};
    case kErrorWantWrite:
      *wants = kWritable;
      return {IoState::kWouldBlock, 0, 0};
    case kErrorZeroReturn:
      return {IoState::kClosed, 0, 0};
    case kErrorSsl:
      // The peer closed the connection without TLS's close message. The frame reader finds out
      // whether a frame is incomplete.
      if (link_state_.state == IoState::kClosed) return link_state_;
      reason_ = TakeError(api_);
      return {IoState::kFailed, 0, EPROTO};
    default:
      return link_state_.lost() ? link_state_ : IoResult{IoState::kClosed, 0, 0};
  }
}

IoResult TlsConnection::Gone() const { return {IoState::kClosed, 0, 0}; }

bool TlsConnection::Gather(const iovec* parts, int count, size_t* bytes) {
  *bytes = 0;
  for (int i = 0; i < count && *bytes < kChunkBytes; ++i) {
    const size_t some = std::min(parts[i].iov_len, kChunkBytes - *bytes);
    if (some == 0) continue;
    uint8_t* to = out_.get() + *bytes;
    if (!guarded_) {
      std::memcpy(to, parts[i].iov_base, some);
    } else if (!base::GuardedCopy(to, parts[i].iov_base, some)) {
      return *bytes > 0;  // first send the bytes before the bad part
    }
    *bytes += some;
  }
  return true;
}

IoResult TlsConnection::TrySend(const iovec* parts, int count) {
  if (closed_.load(std::memory_order_relaxed)) return Gone();
  const Use use;
  if (!use) return Gone();
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  if (!Gather(parts, count, &bytes)) return {IoState::kFault, 0, EFAULT};
  // OpenSSL holds the whole record that did not fit, and ignores the bytes that it is given again.
  // The caller offers those bytes once more, perhaps in other pieces.
  size_t sent = 0;
  IoResult result{IoState::kDone, 0, 0};
  if (stuck_ > 0) {
    result = Write(out_.get(), stuck_);
    if (!result.ok()) return result;
    ahead_ += std::exchange(stuck_, 0);
  }
  const size_t skip = std::min(bytes, ahead_);
  ahead_ -= skip;
  sent = skip;
  while (sent < bytes) {
    const size_t some = std::min(bytes - sent, kRecordBytes);
    result = Write(out_.get() + sent, some);
    if (!result.ok()) break;
    sent += result.bytes;
  }
  if (sent > 0) return {IoState::kDone, sent, 0};
  return result;
}

// Sends at most one record, as a whole. kWouldBlock: OpenSSL has encrypted the record and waits for
// room.
IoResult TlsConnection::Write(const uint8_t* from, size_t bytes) {
  api_.ERR_clear_error();
  const int written = api_.SSL_write(ssl_, from, static_cast<int>(bytes));
  if (written > 0) return {IoState::kDone, static_cast<size_t>(written), 0};
  int wants = kWritable;
  const IoResult result = Failure(written, &wants);
  write_wants_ = wants;
  if (result.state == IoState::kWouldBlock) stuck_ = bytes;
  return result;
}

IoResult TlsConnection::Read(uint8_t* to, size_t bytes) {
  size_t got = 0;
  IoResult result{IoState::kWouldBlock, 0, 0};
  while (got < bytes) {
    api_.ERR_clear_error();
    const int some = api_.SSL_read(ssl_, to + got, static_cast<int>(bytes - got));
    if (some > 0) {
      got += static_cast<size_t>(some);
      if (api_.SSL_has_pending(ssl_) == 0) break;  // a later call reads more from the link
      continue;
    }
    int wants = kReadable;
    result = Failure(some, &wants);
    read_wants_ = wants;
    break;
  }
  // If `bytes` cut the read short, more bytes may be ready. If the stream ended after some bytes,
  // the next call reports the end.
  const bool more = got == bytes && api_.SSL_has_pending(ssl_) != 0;
  ready_ = more || (got > 0 && result.state != IoState::kWouldBlock);
  if (got > 0) return {IoState::kDone, got, 0};
  return result;
}

// Copies decrypted bytes from in_ to memory that may not be writable.
IoResult TlsConnection::Give(void* to, size_t bytes) {
  const size_t some = std::min(bytes, in_end_ - in_begin_);
  if (!base::GuardedCopy(to, in_.get() + in_begin_, some)) return {IoState::kFault, 0, EFAULT};
  in_begin_ += some;
  if (in_begin_ != in_end_) ready_ = true;
  return {IoState::kDone, some, 0};
}

IoResult TlsConnection::TryRecv(void* to, size_t bytes) {
  if (closed_.load(std::memory_order_relaxed)) return Gone();
  const Use use;
  if (!use) return Gone();
  const std::lock_guard lock(mutex_);
  if (!guarded_) return Read(static_cast<uint8_t*>(to), bytes);
  if (in_begin_ == in_end_) {
    const IoResult result = Read(in_.get(), std::min(bytes, kChunkBytes));
    if (!result.ok()) return result;
    in_begin_ = 0;
    in_end_ = result.bytes;
  }
  return Give(to, bytes);
}

int TlsConnection::Wait(int events, int timeout_ms) {
  const int data = events & (kReadable | kWritable);
  if (closed_.load(std::memory_order_relaxed) && data != 0) return data;
  if ((events & kReadable) != 0 && ready_.load()) return kReadable;
  int ask = events & ~(kReadable | kWritable);
  const int read_wants = read_wants_, write_wants = write_wants_;
  if ((events & kReadable) != 0) ask |= read_wants;
  if ((events & kWritable) != 0) ask |= write_wants;
  const int found = link_->Wait(ask, timeout_ms);
  int result = found & ~(kReadable | kWritable);
  if ((events & kReadable) != 0 && (found & read_wants) != 0) result |= kReadable;
  if ((events & kWritable) != 0 && (found & write_wants) != 0) result |= kWritable;
  return result;
}

void TlsConnection::EndSending() {
  if (closed_.load(std::memory_order_relaxed)) return;
  const Use use;
  if (!use) return;
  const std::lock_guard lock(mutex_);
  api_.ERR_clear_error();
  api_.SSL_shutdown(ssl_);  // the close message is sent only if the link has room
  api_.ERR_clear_error();
  link_->EndSending();
}

void TlsConnection::Shutdown() {
  // Do not wait for a thread that is encrypting: shutting the link down ends its call.
  const Use use;
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock() && !closed_ && use) {
    api_.ERR_clear_error();
    api_.SSL_shutdown(ssl_);
    api_.ERR_clear_error();
  }
  closed_ = true;
  link_->Shutdown();
}

void TlsConnection::Abandon() {
  abandoned_ = true;
  closed_ = true;
  link_->Abandon();
}

std::string TlsConnection::LostReason() const {
  if (abandoned_) return {};
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace rgpu::transport::tls
