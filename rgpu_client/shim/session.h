// The session: this process's bond with one worker, and all that the client knows about it.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "rgpu_client/shim/agent.h"
#include "rgpu_client/shim/bands.h"
#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/control_lane.h"
#include "rgpu_client/shim/direct_memory.h"
#include "rgpu_client/shim/lane_keeper.h"
#include "rgpu_client/shim/settings.h"
#include "rgpu_client/shim/tables/address_map.h"
#include "rgpu_client/shim/tables/device_table.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "rgpu_common/native/transport/zip/block_sender.h"

namespace rgpu::shim {

class Session final : public NoticeHandler {
 public:
  // Connects and says HELLO.  Null: `*status` and `*sentence` say why.  A session is never deleted:
  // threads of the application may be in it until the process ends.
  static Session* Open(const Settings& asked, CUresult* status, std::string* sentence);

  Channel& channel() const { return *channel_; }
  HandleTable& handles() { return handles_; }
  AddressMap& addresses() { return addresses_; }
  DeviceTable& devices() { return devices_; }
  PinnedMemory& pinned() { return pinned_; }
  const DirectMemory& direct() const { return direct_; }
  // The bytes of a direct copy are in place.  False: the server is gone.
  bool CopyDone(uint64_t ticket) { return control_.SendCopyDone(ticket); }
  const wire::Band& band() const { return band_; }
  int driver_version() const { return driver_version_; }
  // True for an address of the device: one in the band, or in an allocation where there is no band.
  bool IsDeviceAddress(uint64_t address) const;
  // A new allocation lies here.  False: outside the band, which no honest server does.
  bool AcceptAddresses(uint64_t base, uint64_t bytes);

  Context* FindContext(CUcontext handle) {
    return handles_.Find<Context>(reinterpret_cast<uint64_t>(handle));
  }
  // The stream behind CU_STREAM_PER_THREAD; made on first use.
  Stream* PerThreadStream(Context& context, uint32_t thread);
  // The thread has ended: its streams are nobody's.
  void ForgetThread(uint32_t thread);

  // Contexts with a wait for a value that may not be over (host_order_seq).  While there is one,
  // host bytes must be read in stream order, in all contexts: their streams may wait for each
  // other.
  std::atomic<uint32_t> host_ordered_contexts{0};

  // Goes over to another path to the server.  False: `*why` says why not.
  bool Move(const std::string& uri, std::string* why);
  // One line of numbers for the agent.
  std::string Stats() const;
  // What the lanes went through; zeros if they do not survive cuts.
  transport::LaneStats LaneTotals() const;
  const transport::zip::Savings& savings() const { return savings_; }

  // At process exit: flush and BYE, within about 100 ms.
  void End();
  // In a forked child: give everything up unsaid.
  void Abandon();

  void OnCredit(const wire::FrameHeader& header, uint64_t stream, uint64_t completed) override;
  void OnCompleted(const wire::FrameHeader& header, uint64_t object, uint64_t version,
                   uint64_t time_ns) override;
  void OnLog(uint32_t level, std::string_view text) override;
  void OnCompiled(uint64_t ns, std::string_view name) override;
  void OnPull(uint64_t pull, uint64_t offset, uint64_t bytes, const HostRegion& source) override;
  void OnSticky(CUresult status, std::string_view sentence) override;

 private:
  Session() = default;
  ~Session() = default;
  CUresult Greet(const Settings& settings, transport::Connection& connection,
                 transport::FrameReader& reader, wire::Welcome* welcome, std::string* sentence);
  CUresult Adopt(const Settings& settings, const wire::Welcome& welcome, std::string* sentence);
  void TakeDeviceMemory(transport::ShmConnection& ring, const wire::Welcome& welcome);
  void GiveBackBands(const wire::Band& device, const wire::Band& pinned);
  Stream* FindStream(const wire::FrameHeader& header, uint64_t wire);
  void AddDefaultPools();
  void KeepLanes(const Settings& settings, const wire::Welcome& welcome);

  std::string server_;
  std::vector<wire::Band> device_bands_;
  std::vector<wire::Band> pinned_bands_;
  wire::Band band_;
  int driver_version_ = 0;
  Channel* channel_ = nullptr;
  ControlLane control_;
  transport::Lane* lane_ = nullptr;  // the channel's connection, if it survives cuts
  bool compresses_ = false;          // its links do
  transport::zip::Savings savings_;
  Paths paths_;
  std::unique_ptr<LaneKeeper> keeper_;
  std::unique_ptr<LaneKeeper> control_keeper_;
  Agent agent_;
  HandleTable& handles_ = *new HandleTable;
  AddressMap addresses_;
  DeviceTable devices_;
  PinnedMemory pinned_;
  DirectMemory direct_;
  ClaimedAddresses claimed_;
  std::mutex thread_streams_mutex_;
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Stream>> thread_streams_;
  // Of threads that ended: a thread that reads notices may still be looking at one.
  std::deque<std::unique_ptr<Stream>> gone_streams_;
};

}  // namespace rgpu::shim
