// The session: this process's connection to one worker, and everything that the client knows about
// that worker's objects.
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
#include "rgpu_client/shim/paged/paged_memory.h"
#include "rgpu_client/shim/settings.h"
#include "rgpu_client/shim/tables/address_map.h"
#include "rgpu_client/shim/tables/device_table.h"
#include "rgpu_client/shim/tables/imports.h"
#include "rgpu_client/shim/tables/memory_credit.h"
#include "rgpu_client/shim/tables/reserved_addresses.h"
#include "rgpu_client/shim/tables/stream_frees.h"
#include "rgpu_client/shim/tables/textures.h"
#include "rgpu_common/native/base/advice.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "rgpu_common/native/transport/zip/block_sender.h"

namespace rgpu::shim {

class Session final : public NoticeHandler {
 public:
  // Connects and sends HELLO. Null: `*status` and `*sentence` say why. An open session is never
  // deleted, because threads of the application may use it until the process ends.
  // number: its place among the sessions of the process, which all its handles hold. devices: the
  // table that these sessions share; it is filled when all are open.
  static Session* Open(const Settings& asked, unsigned number, DeviceTable* devices,
                       CUresult* status, std::string* sentence);
  // Called once the shared table of devices is filled.
  void AddDefaultPools();

  unsigned number() const { return number_; }
  const wire::Welcome& welcome() const { return welcome_; }

  Channel& channel() const { return *channel_; }
  HandleTable& handles() { return handles_; }
  AddressMap& addresses() { return addresses_; }
  MemoryCredit& memory_credit() { return memory_credit_; }
  // Gives the credit back that the program has not used. Callable while frames are handled.
  void ReturnCredit();
  // Tells the worker how much credit has been given back so far.
  void TellReturned(uint64_t returned) { control_.SendCreditReturn(returned); }
  StreamFrees& stream_frees() { return stream_frees_; }
  ReservedAddresses& reserved() { return reserved_; }
  TextureTable& textures() { return textures_; }
  Imports& imports() { return imports_; }
  DeviceTable& devices() { return devices_; }
  PinnedMemory& pinned() { return pinned_; }
  const DirectMemory& direct() const { return direct_; }
  PagedMemory& paged() { return paged_; }
  base::Advice& advice() { return advice_; }
  // Tells the worker that the bytes of a direct copy have been copied. False: the connection is
  // lost.
  bool CopyDone(uint64_t ticket) { return control_.SendCopyDone(ticket); }
  const wire::Band& band() const { return band_; }
  bool launch_blocking() const { return launch_blocking_; }
  int driver_version() const { return driver_version_; }
  // True for a device address: an address in the band or, in a session without a band, in a known
  // device allocation.
  bool IsDeviceAddress(uint64_t address) const;
  // Takes note of the addresses of a new allocation. False: they lie outside the band, so the
  // server is faulty or hostile.
  bool AcceptAddresses(uint64_t base, uint64_t bytes);
  // True if this process has reserved the accepted addresses, so that it may map memory there.
  bool HoldsAddresses(uint64_t base, uint64_t bytes);

  Context* FindContext(CUcontext handle) {
    return handles_.Find<Context>(reinterpret_cast<uint64_t>(handle));
  }
  // The stream that has this name on the wire in a command of the context and thread. Null: it does
  // not exist any more.
  Stream* FindStream(uint32_t context, uint32_t thread, uint64_t wire);
  // The stream behind CU_STREAM_PER_THREAD; made on first use.
  Stream* PerThreadStream(Context& context, uint32_t thread);
  // The thread has ended: its per-thread streams are dropped.
  void ForgetThread(uint32_t thread);

  // The number of contexts with a stream that may still wait for a value (host_order_seq). While it
  // is not 0, host bytes are read in stream order in all contexts, because streams of one context
  // may wait for streams of another.
  std::atomic<uint32_t> host_ordered_contexts{0};

  // Moves the session to another path to the server. False: `*why` says why not.
  bool Move(const std::string& uri, std::string* why);
  // The STATS line for the agent.
  std::string Stats() const;
  // Sums of both lanes: cuts, resumes, moves, resent bytes. Zeros if the lanes do not survive cuts.
  transport::LaneStats LaneTotals() const;
  const transport::zip::Savings& savings() const { return savings_; }

  // At process exit: sends the buffered commands and BYE, within about 100 ms.
  void End();
  // In a forked child: gives all connections up without sending anything.
  void Abandon();

  void OnCredit(const wire::FrameHeader& header, uint64_t stream, uint64_t completed) override;
  void OnCompleted(const wire::FrameHeader& header, uint64_t object, uint64_t version,
                   uint64_t time_ns) override;
  void OnMemoryCredit(uint64_t granted, uint64_t freed, bool wanted) override;
  void OnLog(uint32_t level, std::string_view text) override;
  void OnCompiled(uint64_t ns, std::string_view name) override;
  void OnPull(const wire::Pull& pull, const HostRegion& source, uint64_t start) override;
  void OnCallback(uint64_t callback, const HostCall& call, CUresult status) override;
  std::string WhyEnded() override { return control_.WhyRefused(); }
  void OnSticky(CUresult status, std::string_view sentence) override;

 private:
  Session(unsigned number, DeviceTable* devices)
      : number_(number), handles_(*new HandleTable(number)), devices_(*devices) {}
  ~Session() = default;
  CUresult Greet(const Settings& settings, transport::Connection& connection,
                 transport::FrameReader& reader, wire::Welcome* welcome, std::string* sentence);
  CUresult Adopt(const wire::Welcome& welcome, std::string* sentence);
  void TakeDeviceMemory(transport::ShmConnection& ring, const wire::Welcome& welcome);
  void GiveBackBands(const wire::Band& device, const wire::Band& pinned);
  void AttachControl(const wire::Welcome& welcome);
  void KeepLanes(const Settings& settings, const wire::Welcome& welcome);

  const unsigned number_;
  std::string server_;
  wire::Welcome welcome_;
  std::vector<wire::Band> device_bands_;
  std::vector<wire::Band> pinned_bands_;
  wire::Band band_;
  int driver_version_ = 0;
  bool launch_blocking_ = false;
  Channel* channel_ = nullptr;
  ControlLane control_;
  transport::Lane* lane_ = nullptr;  // the channel's connection, if it survives cuts
  bool compresses_ = false;          // the connections under lane_ compress
  transport::zip::Savings savings_;
  Paths paths_;
  std::unique_ptr<LaneKeeper> keeper_;
  std::unique_ptr<LaneKeeper> control_keeper_;
  Agent agent_;
  HandleTable& handles_;
  AddressMap addresses_;
  MemoryCredit memory_credit_;
  ReservedAddresses reserved_;
  TextureTable textures_;
  Imports imports_;
  DeviceTable& devices_;
  PinnedMemory pinned_;
  DirectMemory direct_;
  ClaimedAddresses claimed_;
  PagedMemory paged_{*this};
  base::Advice advice_;
  std::mutex thread_streams_mutex_;
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Stream>> thread_streams_;
  // Streams of threads that have ended. A thread that handles notices may still use one.
  std::deque<std::unique_ptr<Stream>> gone_streams_;
  StreamFrees stream_frees_;
};

}  // namespace rgpu::shim
