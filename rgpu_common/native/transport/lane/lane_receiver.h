// LaneReceiver: the receiving half of a lane. It takes the stream out of the records, skips bytes
// that an earlier link has already brought, and hands acknowledgements to the sending half.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "rgpu_common/native/transport/lane/lane_link.h"
#include "rgpu_common/native/transport/lane/lane_options.h"
#include "rgpu_common/native/transport/lane/lane_progress.h"
#include "rgpu_common/native/transport/lane/lane_readers.h"
#include "rgpu_common/native/transport/lane/record.h"
#include "rgpu_common/native/transport/lane/stash.h"
#include "rgpu_common/native/transport/read_ahead.h"
#include "rgpu_common/native/transport/receiving.h"
#include "rgpu_common/native/transport/transport.h"
#include "rgpu_common/native/wire/codec.h"

namespace rgpu::transport {

// Any thread may call it, except where a function says what it needs.
class LaneReceiver {
 public:
  LaneReceiver(const LaneOptions& options, LaneProgress& progress, LaneLink& link,
               LaneReaders& readers);

  // Before the records: the link.
  Connection& plain_link() const { return *link_; }
  // From here on the link carries records. `ahead` holds bytes of the first of them.
  void StartRecords(wire::ByteView ahead);
  // If the result is lost, the lane has been told. The caller sends an acknowledgement if one is
  // due afterwards.
  IoResult Receive(void* to, size_t bytes, How how);
  // Receives everything that has arrived on the link, to get at the acknowledgements.
  void PumpInput();
  bool has_input() const { return has_input_.load(); }

  // For Attach. The functions below need this mutex.
  std::mutex& mutex() { return mutex_; }
  // Keeps what the last link brought, and expects the bytes after it from the next link.
  void Rewind();
  void SetLink(const std::shared_ptr<Connection>& link) { link_ = link; }

 private:
  IoResult Take(uint8_t* to, size_t bytes, How how);
  IoResult TakeStash(uint8_t* to, size_t bytes, How how);
  IoState NextRecord(size_t hint, bool may_read, How how);
  bool Accept(const RecordHeader& header);
  void Taken(size_t bytes);
  void DrainRaw();
  void NoteInput();
  void OnFailure(const std::shared_ptr<Connection>& link);

  const LaneOptions& options_;
  LaneProgress& progress_;
  LaneLink& lane_link_;
  LaneReaders& readers_;
  std::atomic<bool> end_seen_{false};
  std::atomic<bool> broken_{false};  // the peer sent bytes that are not a record
  std::atomic<bool> has_input_{false};

  std::mutex mutex_;  // for all members below
  std::shared_ptr<Connection> link_;
  ReadAhead raw_;
  uint64_t in_left_ = 0;  // bytes left of the record that is being read
  uint64_t skip_ = 0;     // bytes among them that an earlier link has already brought
  uint64_t next_ = 0;     // offset after the last byte of all accepted records
  bool large_ = false;    // the last record was large
  Stash stash_;
};

}  // namespace rgpu::transport
