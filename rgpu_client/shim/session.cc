#include "rgpu_client/shim/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gen/handshake.gen.h"
#include "gen/opcodes.gen.h"
#include "rgpu_client/shim/ring.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/trace.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/base/release.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::shim {
namespace {

constexpr int kConnectTimeoutMs = 10000;
// Long, because the server may have to start a worker first.
constexpr int kWelcomeTimeoutMs = 60000;
constexpr int kExitTimeoutMs = 50;
constexpr size_t kGoneStreams = 64;
// The most that a stream of this process uses of what the server grants: it keeps account of each
// command in flight, and staging memory for copies between devices.
constexpr uint32_t kMostCredits = 1U << 20;
constexpr uint64_t kLeastCreditBytes = 1U << 20;
constexpr uint64_t kMostCreditBytes = 1U << 30;
constexpr uint64_t kPartOfLease = 8;  // the largest memory credit

bool WishesCompression(const Settings& settings) {
  std::string why;
  if (!settings.compression || !settings.resumable) return false;
  if (transport::zip::LoadZstd(&why) != nullptr) return true;
  // A user who names a library means that one, so its failure is an error.
  const bool named = getenv("RGPU_LIBZSTD") != nullptr;
  base::Log(named ? base::Level::kError : base::Level::kInfo, "the session does not compress: %s",
            why.c_str());
  return false;
}

wire::Hello MakeHello(const Settings& settings, const std::vector<wire::Band>& device_bands,
                      const std::vector<wire::Band>& pinned_bands, bool ring) {
  wire::Hello hello;
  hello.release = base::Release();
  hello.access_token = settings.access_token;
  hello.lease_key = wire::CleanText(settings.lease_key, wire::kMaxNameBytes);
  hello.tenant = wire::CleanText(settings.tenant, wire::kMaxNameBytes);
  hello.container = wire::CleanText(settings.container, wire::kMaxNameBytes);
  hello.program = wire::CleanText(settings.program, wire::kMaxSentenceBytes);
  hello.pid = static_cast<uint32_t>(getpid());
  hello.device = settings.device;
  hello.memory_bytes = settings.memory.bytes;
  hello.share_request_ppm = settings.share_request_ppm;
  hello.share_limit_ppm = settings.share_limit_ppm;
  hello.wishes = settings.wishes;
  if (TraceOn()) hello.wishes.push_back({static_cast<uint16_t>(wire::WishKey::kCompiled), 1});
  if (ring) hello.wishes.push_back({static_cast<uint16_t>(wire::WishKey::kShm), 1});
  if (settings.resumable) {
    hello.wishes.push_back({static_cast<uint16_t>(wire::WishKey::kResumable), 1});
  }
  if (!ring && WishesCompression(settings)) {
    hello.wishes.push_back({static_cast<uint16_t>(wire::WishKey::kCompression), 1});
  }
  // The lowest minor version that knows these wishes, so that older servers still accept a HELLO
  // without new wishes.
  const bool grants = ring || settings.resumable;
  hello.minor = grants ? wire::kGrantsMinor : hello.wishes.empty() ? 0 : wire::kWishesMinor;
  hello.device_bands = device_bands;
  hello.pinned_bands = pinned_bands;
  for (const OpcodeInfo& info : kOpcodeTable) {
    hello.opcodes.push_back({static_cast<uint16_t>(info.opcode), info.layout_hash});
  }
  return hello;
}

std::string NoAnswer(const std::string& server, transport::ReadState state,
                     const std::string& reason) {
  if (state == transport::ReadState::kTimeout) {
    return "the server at " + server + " does not answer" + kSilentRemedy;
  }
  if (!reason.empty()) {
    return "the server at " + server + " ended the connection: " + reason +
           transport::Remedy(reason);
  }
  return "what listens at " + server + " is no rgpu server; check --server or RGPU_SERVER";
}

bool Holds(const std::vector<wire::Band>& bands, const wire::Band& band) {
  for (const wire::Band& one : bands) {
    if (one.base == band.base && band.size <= one.size) return true;
  }
  return false;
}

// Wraps the connection into a lane. From here on both ends send records, and with `savings` the
// records travel in compressed blocks. The reader may have read the first of these bytes already;
// they are passed on.
transport::Lane* WrapLane(uint64_t grace_ms, transport::zip::Savings* savings,
                          std::unique_ptr<transport::Connection>* connection,
                          std::unique_ptr<transport::FrameReader>* reader) {
  wire::ByteView ahead = (*reader)->ahead();
  if (savings != nullptr) {
    auto compressed = transport::zip::Compress(std::move(*connection), savings);
    compressed->StartBlocks(std::exchange(ahead, {}));
    *connection = std::move(compressed);
  }
  transport::LaneOptions options;
  options.grace_ms = static_cast<int>(std::min<uint64_t>(grace_ms, INT32_MAX));
  auto lane = std::make_unique<transport::Lane>(std::move(*connection), options);
  lane->StartRecords(ahead);
  transport::Lane* bare = lane.get();
  *connection = std::move(lane);
  *reader = std::make_unique<transport::FrameReader>(bare);
  return bare;
}

// Connects to the server's address, or else to the first other path that accepts a connection. The
// two then change places in `settings`. The path was chosen once for all processes of a program, so
// it may have failed since.
std::unique_ptr<transport::Connection> ConnectFirst(Settings* settings, std::string* sentence) {
  constexpr transport::ConnectOptions kOptions{.timeout_ms = kConnectTimeoutMs};
  transport::ConnectError why;
  auto connection = transport::Connect(settings->server, kOptions, &why);
  if (connection == nullptr) *sentence = why.sentence;
  for (std::string& uri : settings->paths) {
    if (connection != nullptr) break;
    connection = transport::Connect(uri, kOptions, &why);
    if (connection == nullptr) continue;
    base::Log(base::Level::kInfo, "the session begins on %s: %s", uri.c_str(), sentence->c_str());
    std::swap(settings->server, uri);
  }
  return connection;
}

}  // namespace

Session* Session::Open(const Settings& asked, unsigned number, DeviceTable* devices,
                       CUresult* status, std::string* sentence) {
  Settings settings = asked;
  auto connection = ConnectFirst(&settings, sentence);
  if (connection == nullptr) {
    *status = CUDA_ERROR_DEVICE_UNAVAILABLE;
    return nullptr;
  }
  auto* session = new Session(number, devices);
  session->server_ = settings.server;
  session->launch_blocking_ = settings.launch_blocking;
  session->device_bands_ = ReserveDeviceBands();
  session->pinned_bands_ = ReservePinnedBands();
  auto reader = std::make_unique<transport::FrameReader>(connection.get());
  wire::Welcome welcome;
  *status = session->Greet(settings, *connection, *reader, &welcome, sentence);
  if (*status == CUDA_SUCCESS) *status = session->Adopt(welcome, sentence);
  if (*status != CUDA_SUCCESS) {
    session->GiveBackBands({}, {});
    delete session;
    return nullptr;
  }
  if (const uint64_t grace_ms = wire::Granted(welcome.grants, wire::WishKey::kResumable);
      grace_ms != 0) {
    // The server grants compression only to a client that wished for it, so zstd is present.
    session->compresses_ = wire::Granted(welcome.grants, wire::WishKey::kCompression) == 1 &&
                           transport::zip::LoadZstd(nullptr) != nullptr;
    session->lane_ = WrapLane(grace_ms, session->compresses_ ? &session->savings_ : nullptr,
                              &connection, &reader);
  }
  session->channel_ = new Channel(std::move(connection), std::move(reader), session, number);
  session->channel_->SetLimits(
      {std::clamp(welcome.stream_credits, 1U, kMostCredits),
       std::clamp<uint64_t>(welcome.stream_credit_bytes, kLeastCreditBytes, kMostCreditBytes)});
  session->channel_->SetMissing(welcome.missing);
  session->welcome_ = welcome;
  if (settings.memory_credit) {
    session->memory_credit_.SetMost(welcome.memory_limit_bytes / kPartOfLease);
  }
  session->AttachControl(welcome);
  session->KeepLanes(settings, welcome);
  return session;
}

CUresult Session::Greet(const Settings& settings, transport::Connection& connection,
                        transport::FrameReader& reader, wire::Welcome* welcome,
                        std::string* sentence) {
  if (device_bands_.empty() || pinned_bands_.empty()) {
    *sentence = "no address space is left for device memory; raise the limit (ulimit -v unlimited)";
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* ring = dynamic_cast<transport::ShmConnection*>(&connection);
  if (ring != nullptr) ring->ExpectDescriptors();
  const bool sent = transport::SendHandshake(
      connection, wire::Handshake::kHello,
      MakeHello(settings, device_bands_, pinned_bands_, ring != nullptr), kConnectTimeoutMs);
  wire::FrameHeader header;
  wire::ByteView head;
  const auto state =
      sent ? reader.Next(&header, &head, kWelcomeTimeoutMs) : transport::ReadState::kClosed;
  if (state != transport::ReadState::kFrame || header.kind != wire::Kind::kHandshake) {
    *sentence = NoAnswer(settings.server, state, connection.LostReason());
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  wire::Reader fields(head.data, head.size);
  if (header.opcode == static_cast<uint16_t>(wire::Handshake::kWelcome) && Get(fields, welcome)) {
    if (ring == nullptr) return CUDA_SUCCESS;
    if (AgreeOnRing(*ring, reader, *welcome)) {
      TakeDeviceMemory(*ring, *welcome);
      return CUDA_SUCCESS;
    }
    *sentence = "the server at " + settings.server +
                " closed the connection while the session was opened; see its log";
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  wire::Refused refused;
  if (header.opcode == static_cast<uint16_t>(wire::Handshake::kRefused) && Get(fields, &refused)) {
    *sentence = refused.sentence;
    return header.status == 0 ? CUDA_ERROR_DEVICE_UNAVAILABLE
                              : static_cast<CUresult>(header.status);
  }
  *sentence =
      "the server at " + settings.server +
      " answers in a way this release does not know; install the same release on both sides";
  return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

// Maps the device memory that the server sent after the rings. If it sent none, copies go through
// the rings.
void Session::TakeDeviceMemory(transport::ShmConnection& ring, const wire::Welcome& welcome) {
  const auto received = ring.TakeDescriptors();
  const uint64_t granted = wire::Granted(welcome.grants, wire::WishKey::kShm);
  if (!ring.switched() || (granted & wire::kDeviceMemoryGranted) == 0 || received.empty()) return;
  direct_.Map(received.front(), welcome.band);
}

CUresult Session::Adopt(const wire::Welcome& welcome, std::string* sentence) {
  // A server on NVIDIA's driver names no device band: see ClaimedAddresses.
  const bool device = welcome.band.size != 0;
  const bool pinned = welcome.pinned.size != 0;
  if ((device && !Holds(device_bands_, welcome.band)) ||
      (pinned && !Holds(pinned_bands_, welcome.pinned))) {
    *sentence =
        "the server chose addresses that this program did not offer; install the same "
        "release on both sides";
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  band_ = welcome.band;
  const wire::Band mine = pinned ? welcome.pinned : pinned_bands_.front();
  GiveBackBands(band_, mine);
  pinned_.Init(mine);
  driver_version_ = welcome.driver_version;
  return CUDA_SUCCESS;
}

// Frees all candidate bands except `device` and `pinned`, and of these the part that the worker did
// not take.
void Session::GiveBackBands(const wire::Band& device, const wire::Band& pinned) {
  const auto give = [](const std::vector<wire::Band>& bands, const wire::Band& keep) {
    for (const wire::Band& band : bands) {
      if (keep.size == 0 || band.base != keep.base) {
        GiveBack(band);
      } else if (band.size > keep.size) {
        GiveBack({keep.base + keep.size, band.size - keep.size});
      }
    }
  };
  give(device_bands_, device);
  give(pinned_bands_, pinned);
}

void Session::AddDefaultPools() {
  for (int i = 0; i < devices_.count(); ++i) {
    Device& device = *devices_.Find(i);
    if (device.session != number_) continue;
    auto pool = std::make_unique<Pool>();
    pool->device = i;
    pool->is_default = true;
    pool->wire = device.info.default_pool;
    device.default_pool = pool.get();
    device.current_pool = handles_.Add(std::move(pool));
  }
}

bool Session::IsDeviceAddress(uint64_t address) const {
  if (band_.size != 0) return address - band_.base < band_.size;
  const auto range = addresses_.Find(address);
  return (range && range->is_device()) || reserved_.Holds(address, 1);
}

bool Session::AcceptAddresses(uint64_t base, uint64_t bytes) {
  if (band_.size != 0) {
    const uint64_t offset = base - band_.base;
    return offset < band_.size && bytes <= band_.size - offset;
  }
  claimed_.Add(base, bytes);
  return true;
}

void Session::ReturnCredit() {
  // If the control lane is lost, so is the session.
  if (const auto returned = memory_credit_.GiveBack()) TellReturned(*returned);
}

bool Session::HoldsAddresses(uint64_t base, uint64_t bytes) {
  return band_.size != 0 || claimed_.Hold(base, bytes);
}

Stream* Session::PerThreadStream(Context& context, uint32_t thread) {
  const std::lock_guard lock(thread_streams_mutex_);
  auto& slot = thread_streams_[{static_cast<uint32_t>(context.id), thread}];
  if (slot == nullptr) {
    slot = std::make_unique<Stream>();
    slot->id = kWirePerThreadStream;
    slot->wire = kWirePerThreadStream;
    slot->context = static_cast<uint32_t>(context.id);
    slot->thread = thread;
  }
  return slot.get();
}

void Session::ForgetThread(uint32_t thread) {
  const std::lock_guard lock(thread_streams_mutex_);
  for (auto it = thread_streams_.begin(); it != thread_streams_.end();) {
    if (it->first.second != thread) {
      ++it;
      continue;
    }
    gone_streams_.push_back(std::move(it->second));
    it = thread_streams_.erase(it);
  }
  while (gone_streams_.size() > kGoneStreams) gone_streams_.pop_front();
}

void Session::End() {
  for (LaneKeeper* keeper : {keeper_.get(), control_keeper_.get()}) {
    if (keeper != nullptr) keeper->Stop();
  }
  channel_->FlushAtExit(kExitTimeoutMs);
  control_.Bye(kExitTimeoutMs);
  transport::Retire(kExitTimeoutMs);
  transport::zip::LogSavings(savings_);
}

void Session::Abandon() {
  channel_->Abandon();
  control_.Abandon();
  agent_.Abandon();
}

}  // namespace rgpu::shim
