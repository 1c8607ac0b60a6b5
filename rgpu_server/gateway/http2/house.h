// The resources that all connections of the gateway of `grpc:` share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_server/gateway/door.h"
#include "rgpu_server/gateway/figures.h"
#include "rgpu_server/gateway/guests.h"
#include "rgpu_server/gateway/http2/nghttp2.h"
#include "rgpu_server/gateway/http2/windows.h"

namespace rgpu::gateway::http2 {

// Time limits, in milliseconds.
struct Patience {
  int handshake = 10000;  // for the client's preface and SETTINGS
  int idle = 60000;       // for a connection without calls
  int ping = 5000;        // without any bytes until a PING is sent, and for its answer
  int first = 10000;      // for the first data of a call
};

struct Bounds {
  unsigned int calls = 4096;
  int64_t windows = Windows::kTotalBytes;
};

// Wakes the thread of a connection from any thread.
class Waker {
 public:
  Waker();
  int fd() const { return event_.get(); }
  void Wake();
  // Wakes the thread to end a call, which has to make room for another one.
  void SendAway(int32_t stream);
  // Returns the streams of the calls to end, and forgets them. Call it after a wake-up.
  std::vector<int32_t> Take();

 private:
  const base::UniqueFd event_;
  std::mutex mutex_;
  std::vector<int32_t> sent_away_;
};

struct House {
  House(const lib::Api& api_, const Door& door_, Figures* figures_, const Patience& patience_,
        const Bounds& bounds)
      : api(api_),
        door(door_),
        figures(*figures_),
        patience(patience_),
        windows(bounds.windows),
        calls({bounds.calls, bounds.calls}) {}

  const lib::Api& api;
  const Door& door;
  Figures& figures;
  const Patience patience;
  Windows windows;
  Guests calls;  // a call that is not admitted makes room for others
  std::atomic<bool> leaving{false};
};

}  // namespace rgpu::gateway::http2
