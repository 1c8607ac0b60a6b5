// RecordWriter: sends one record after the other on a link that may take a part of each at a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "rgpu_common/native/transport/lane/record.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

// A record that was begun stays begun even if nothing of it was sent, because TLS may have
// encrypted it already. One thread at a time may use a writer.
class RecordWriter {
 public:
  // The most parts of a record in one call of Write. The header takes one more.
  static constexpr int kMaxParts = 127;

  // No record is begun.
  bool idle() const { return header_left_ == 0 && left_ == 0; }
  // A record without bytes is begun: only a part of its header is still to be sent.
  bool in_empty_record() const { return header_left_ > 0 && left_ == 0; }
  bool header_sent() const { return header_left_ == 0; }
  const RecordHeader& header() const { return header_; }
  // Bytes of the record that are still to be sent.
  uint64_t left() const { return left_; }

  void Begin(const RecordHeader& header) {
    header_ = header;
    header_left_ = kRecordHeaderBytes;
    left_ = header.length;
  }
  // Forgets the record: the next link does not know of it.
  void Reset() { header_left_ = left_ = 0; }
  // Sends as much as fits of the record that was begun. `parts` hold its next bytes. `*sent` is the
  // number of them that were sent.
  IoResult Write(Connection& link, const iovec* parts, int count, size_t* sent);

 private:
  RecordHeader header_;     // of the record that was begun
  size_t header_left_ = 0;  // bytes of header_ that are still to be sent
  uint64_t left_ = 0;
};

}  // namespace rgpu::transport
