// What a gateway counts, for the daemon's metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace rgpu::gateway {

// Why somebody who came did not get in: a closed set, so that no stranger makes up a label.
enum class Reason {
  kNobody,  // who left again, or said nothing that counts: not counted
  kLate,
  kNotTls,
  kCertificate,
  kHandshake,
  kTooMany,
  kNoServer,
};

struct Refusal {
  Reason reason = Reason::kNobody;
  std::string why;  // a sentence for the log, "" if that is nobody's business
};

class Figures {
 public:
  void Refused(Reason reason) {
    if (reason != Reason::kNobody) ++refused_[static_cast<size_t>(reason)];
  }
  // "open=1 received=2 sent=3 late=0 ...": NAME=NUMBER, separated by blanks, always all of them.
  std::string Line() const;

  std::atomic<uint64_t> open{0};      // connections that are carried now
  std::atomic<uint64_t> received{0};  // bytes from clients
  std::atomic<uint64_t> sent{0};      // bytes to clients

 private:
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Reason::kNoServer) + 1> refused_{};
};

}  // namespace rgpu::gateway
