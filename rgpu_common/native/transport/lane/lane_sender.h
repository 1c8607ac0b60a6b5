// LaneSender: the sending half of a lane. It sends the stream in records, keeps the bytes that the
// peer's reader has not taken, and sends them again on the next link. It also sends the
// acknowledgements for the receiving half.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "rgpu_common/native/transport/lane/lane_link.h"
#include "rgpu_common/native/transport/lane/lane_options.h"
#include "rgpu_common/native/transport/lane/lane_progress.h"
#include "rgpu_common/native/transport/lane/lane_receiver.h"
#include "rgpu_common/native/transport/lane/record_writer.h"
#include "rgpu_common/native/transport/lane/window.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

// Any thread may call it, except where a function says what it needs.
class LaneSender {
 public:
  LaneSender(const LaneOptions& options, LaneProgress& progress, LaneLink& link,
             LaneReceiver& receiver);

  // Before the records: the link.
  Connection& plain_link() const { return *link_; }
  IoResult TrySend(const iovec* parts, int count);
  void Lend(const void* memory, size_t bytes);
  void TakeBack(const void* memory, size_t bytes);
  // Sends acknowledgements and bytes that are due. If another thread is sending, that thread does
  // so.
  void Flush();
  // Tells the peer that the stream ends in good order, if the link has room, so that the peer does
  // not wait for a resume.
  void SayEnd();

  // For Attach. The functions below need this mutex.
  std::mutex& mutex() { return mutex_; }
  // Prepares to send on a new link the bytes that the peer has not taken: those after `received`.
  void Rewind(uint64_t received, bool ack_due);
  uint64_t bytes_to_resend() const { return progress_.sent - resend_; }
  void SetLink(const std::shared_ptr<Connection>& link) { link_ = link; }

 private:
  IoResult SendSome(const iovec* parts, int count);
  void StartRecord(uint64_t offset, uint64_t bytes);
  IoResult WriteRecord(const iovec* parts, int count, size_t* sent);
  void NoteTold(uint64_t received);
  void Keep(const iovec* parts, int count, size_t bytes);
  size_t KeepRest(const iovec* parts, int count, size_t sent);
  void SetOutputDue(bool due);
  IoResult FlushLocked();
  IoResult SendDue();
  IoResult Resend();
  void OnFailure(const std::shared_ptr<Connection>& link);

  const LaneOptions& options_;
  LaneProgress& progress_;
  LaneLink& lane_link_;
  LaneReceiver& receiver_;
  std::atomic<bool> unreadable_{false};  // lent memory can no longer be read

  std::mutex mutex_;  // for all members below
  std::shared_ptr<Connection> link_;
  Window window_;
  const uint8_t* lent_ = nullptr;
  size_t lent_bytes_ = 0;
  RecordWriter record_;
  bool link_was_full_ = false;
  uint64_t resend_ = 0;  // the present link has taken the stream up to here
};

}  // namespace rgpu::transport
