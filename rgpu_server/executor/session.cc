#include "rgpu_server/executor/session.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gen/handshake.gen.h"
#include "gen/notices.gen.h"
#include "rgpu_common/native/base/release.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_server/executor/device_table.h"
#include "rgpu_server/executor/role.h"

namespace rgpu::exec {

namespace {

// Time to send the last messages to a client that reads. A busy machine may run neither end for
// some tenths of a second, and without them the client does not learn why its session ended.
constexpr int kFinishMs = 1000;
constexpr uint64_t kSmallestBand = 64U << 20;

wire::FrameHeader HandshakeHeader(wire::Handshake opcode) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(opcode);
  return header;
}

// Maps the band without access. Returns false if part of it is in use in this process.
bool Reserve(const wire::Band& band) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (band.size < kSmallestBand || band.base < page || band.base % page != 0 ||
      band.size % page != 0 || band.base + band.size < band.base) {
    return false;
  }
  void* wanted = reinterpret_cast<void*>(band.base);
  void* got = mmap(wanted, band.size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == wanted) return true;
  munmap(got, band.size);  // the kernel does not know MAP_FIXED_NOREPLACE
  return false;
}

std::vector<uint16_t> MissingOpcodes(const wire::Hello& hello) {
  std::vector<uint16_t> missing;
  for (const wire::OpcodeHash& theirs : hello.opcodes) {
    const OpcodeInfo* ours = FindOpcode(theirs.opcode);
    if (ours == nullptr || ours->layout_hash != theirs.layout_hash)
      missing.push_back(theirs.opcode);
  }
  return missing;
}

}  // namespace

void SendRefused(transport::Outbox& outbox, const Refusal& refusal) {
  wire::FrameHeader header = HandshakeHeader(wire::Handshake::kRefused);
  header.status = static_cast<int32_t>(refusal.status);
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  wire::Put(writer, wire::Refused{refusal.sentence});
  frame.End();
  outbox.Post(frame);
  outbox.Drain(kFinishMs);
}

// If the client asks for a ring, returns a connection that can become one.
std::unique_ptr<transport::Connection> Session::Prepare(
    std::unique_ptr<transport::Connection> lane) {
  wire::Hello hello;
  wire::Reader head(assignment_.hello.data(), assignment_.hello.size());
  if (!wire::Get(head, &hello) || hello.minor < wire::kGrantsMinor) return lane;
  const bool wishes = std::ranges::any_of(hello.wishes, [](const wire::Wish& wish) {
    return wish.key == static_cast<uint16_t>(wire::WishKey::kShm) && wish.value == 1;
  });
  if (wishes) lane = transport::MayShare(std::move(lane));
  shared_ = dynamic_cast<transport::ShmConnection*>(lane.get());
  if (wishes && shared_ == nullptr) ring_ = wire::worker::Ring::kNotLocal;
  return links_.Wrap(wire::LaneName::kCommand, std::move(lane));
}

Session::Session(const Driver& driver, Assignment assignment, lease::Page* page,
                 std::unique_ptr<transport::Connection> lane)
    : driver_(driver),
      assignment_(std::move(assignment)),
      page_(page),
      links_(assignment_),
      lane_(Prepare(std::move(lane))),
      reader_(lane_.get()),
      outbox_(lane_.get()),
      ledger_(page, assignment_.slot),
      ended_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

bool Session::ReserveBands(const wire::Hello& hello, Refusal* refusal) {
  for (const wire::Band& band : hello.pinned_bands) {
    if (!Reserve(band)) continue;
    welcome_.pinned = band;
    break;
  }
  // NVIDIA's driver chooses addresses itself. Until allocations lie in reserved ranges, the client
  // is told that there is no band.
  if (!driver_.emulated || hello.device_bands.empty()) return true;
  for (const wire::Band& band : hello.device_bands) {
    if (!Reserve(band)) continue;
    munmap(reinterpret_cast<void*>(band.base), band.size);
    welcome_.band = band;
    char text[64];
    std::snprintf(text, sizeof text, "0x%llx:0x%llx", static_cast<unsigned long long>(band.base),
                  static_cast<unsigned long long>(band.size));
    setenv("RGPU_EMU_BAND", text, 1);
    return true;
  }
  refusal->sentence =
      "none of the client's address bands is free on the server; start the program again";
  return false;
}

bool Session::StartDevice(Refusal* refusal) {
  CUdevice device = 0;
  CUresult result = driver_->cuInit(0);
  if (result == CUDA_SUCCESS) result = driver_->cuDriverGetVersion(&welcome_.driver_version);
  if (result == CUDA_SUCCESS) result = driver_->cuDeviceGet(&device, assignment_.device);
  wire::DeviceInfo info;
  if (result == CUDA_SUCCESS && assignment_.whole_device) {
    size_t total = 0;
    result = driver_->cuDeviceTotalMem_v2(&total, device);
    page_->memory_limit_bytes = total;
  }
  if (result == CUDA_SUCCESS) result = ReadDevice(driver_, device, ledger_.limit(), &info);
  if (result != CUDA_SUCCESS) {
    const char* name = nullptr;
    driver_->cuGetErrorName(result, &name);
    refusal->status = result;
    refusal->sentence = std::string("the server's device does not start: ") +
                        (name ? name : "unknown error") + "; see the server's log";
    return false;
  }
  welcome_.devices.push_back(std::move(info));
  Executor::Lease lease{page_, assignment_.slot, std::move(assignment_.signal)};
  executor_ = std::make_unique<Executor>(driver_, ledger_, outbox_, device, std::move(lease));
  return true;
}

bool Session::Admit(const wire::Hello& hello, Refusal* refusal) {
  if (hello.major != wire::kWireMajor) {
    refusal->status = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    refusal->sentence = "the client speaks wire version " + std::to_string(hello.major) +
                        ", this server " + std::to_string(wire::kWireMajor) +
                        "; install the same rgpu release on both";
    return false;
  }
  for (const std::string& setting : assignment_.environment) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, 1);
  }
  return ReserveBands(hello, refusal) && StartDevice(refusal);
}

bool Session::Open(Refusal* refusal) {
  wire::Hello hello;
  wire::Reader head(assignment_.hello.data(), assignment_.hello.size());
  if (!wire::Get(head, &hello)) {
    refusal->sentence = "the client's HELLO does not decode; install the same rgpu release on both";
  } else if (Admit(hello, refusal)) {
    executor_->memory().NameLease(hello.lease_key);
    executor_->tells_compiled() = std::ranges::any_of(hello.wishes, [](const wire::Wish& wish) {
      return wish.key == static_cast<uint16_t>(wire::WishKey::kCompiled) && wish.value == 1;
    });
    welcome_.session = assignment_.session;
    welcome_.secret = assignment_.secret;
    welcome_.release = base::Release();
    welcome_.stream_credits = assignment_.stream_credits;
    welcome_.stream_credit_bytes = assignment_.stream_credit_bytes;
    welcome_.memory_limit_bytes = ledger_.limit();
    welcome_.missing = MissingOpcodes(hello);
    welcome_.note = driver_.emulated ? "rgpu emulated device" : "NVIDIA driver";
    if (SayWelcome()) return true;
    refusal->sentence = "the client went away while its session was opened";
  }
  SendRefused(outbox_, *refusal);
  return false;
}

void Session::Serve() {
  decoder_ = std::make_unique<Decoder>(*executor_, reader_,
                                       [this](const std::string& reason) { EndLost(reason); });
  executor_->poller().Start();
  executor_->reaper().Start();
  executor_->gate().Start(lane_.get(), &links_);
  links_.OnBack([this] { executor_->gate().LinkIsBack(); });
  decoder_->Start();
}

bool Session::MayAttach(const wire::Attach& attach) const {
  return attach.session == assignment_.session &&
         wire::SameSecret(attach.secret, assignment_.secret) && control_ == nullptr;
}

void Session::Attach(std::unique_ptr<transport::Connection> control, uint32_t epoch) {
  if (control_ != nullptr) return;  // one per session; the destructor closes the second connection
  control_ = links_.Wrap(wire::LaneName::kControl, std::move(control), epoch);
  links_.StartRecords(wire::LaneName::kControl, nullptr);
  transport::FrameBuffer frame;
  frame.Begin(HandshakeHeader(wire::Handshake::kAttached));
  frame.End();
  iovec part = frame.part();
  transport::SendAll(*control_, &part, 1, nullptr, kFinishMs);
  NeedThread("rgpu-control", [this] { ReadControl(); });
}

void Session::ReadControl() {
  transport::FrameReader reader(control_.get(), 64U << 10);
  for (;;) {
    wire::FrameHeader header;
    wire::ByteView head;
    switch (reader.Next(&header, &head, -1)) {
      case transport::ReadState::kFrame:
        if (!OnControl(reader, header, head)) return;
        break;
      case transport::ReadState::kClosed:
        return EndLost("the client's process is gone");
      case transport::ReadState::kMalformed:
        return EndWith(CUDA_ERROR_EXTERNAL_DEVICE, "the client sent bytes that are not a frame");
      default:
        break;
    }
  }
}

bool Session::OnControl(transport::FrameReader& reader, const wire::FrameHeader& header,
                        wire::ByteView head) {
  wire::Reader fields(head.data, head.size);
  if (header.kind == wire::Kind::kControl) {
    switch (static_cast<wire::Control>(header.opcode)) {
      case wire::Control::kBye:
        End("the client said goodbye");
        return false;
      case wire::Control::kCancel: {  // no waiting command can be cancelled yet
        wire::Cancel cancel;
        if (Get(fields, &cancel)) return true;
        break;
      }
      case wire::Control::kCallbackDone: {
        wire::CallbackDone done;
        if (Get(fields, &done) && executor_->host_calls().Done(done.callback)) return true;
        break;
      }
      case wire::Control::kKeepAlive:
        return true;
      case wire::Control::kCopyDone: {
        wire::CopyDone done;
        if (Get(fields, &done) && executor_->directs().Done(done.ticket)) return true;
        break;
      }
      case wire::Control::kCreditReturn: {
        wire::CreditReturn returned;
        if (!Get(fields, &returned)) break;
        const std::lock_guard lock(executor_->mutex());
        executor_->memory().credit().Returned(returned.returned);
        return true;
      }
      case wire::Control::kPullData: {
        wire::PullData data;
        if (Get(fields, &data) &&
            executor_->pulls().OnData(reader, data.pull, data.offset, header.bulk_bytes)) {
          return true;
        }
        break;
      }
    }
  }
  EndWith(CUDA_ERROR_EXTERNAL_DEVICE,
          "the client sent an invalid or unexpected message on the control lane; install the same "
          "rgpu release on both");
  return false;
}

void Session::End(const std::string& reason) {
  {
    std::lock_guard lock(reason_mutex_);
    if (!reason_.empty()) return;
    reason_ = reason.empty() ? "the session ended" : reason;
  }
  const uint64_t one = 1;
  // The write cannot fail: the counter is far from its maximum.
  if (write(ended_.get(), &one, sizeof one) < 0) std::abort();
}

// Ends the session because a lane has ended.
void Session::EndLost(const std::string& reason) {
  const std::string better = links_.Reason();
  End(better.empty() ? reason : better);
}

std::optional<Links::Report> Session::Resume(const wire::Resume& resume,
                                             std::unique_ptr<transport::Connection> link) {
  if (!links_.Knows(resume) || resume.link != 0) {
    RefuseResume(*link, CUDA_ERROR_DEVICE_UNAVAILABLE,
                 "the RESUME names another session or has a wrong secret");
    return std::nullopt;
  }
  if (resume.lane == wire::LaneName::kControl && control_ == nullptr) {
    // The connection with ATTACH was lost before it reached the worker.
    if (!Links::Begin(resume, *link)) return std::nullopt;
    Attach(std::move(link), resume.epoch);
    return Links::Report{resume.lane, resume.epoch, false, 0};
  }
  return links_.Resume(resume, std::move(link));
}

void Session::EndWith(CUresult status, const std::string& sentence) {
  executor_->SetSticky(status, 0, sentence);
  End(sentence);
}

std::string Session::reason() {
  std::lock_guard lock(reason_mutex_);
  return reason_;
}

void Session::Finish() {
  outbox_.Flush();
  outbox_.Drain(kFinishMs);
  lane_->Shutdown();
  // An orderly shutdown, so that the client does not try to reconnect.
  if (control_ != nullptr) control_->Shutdown();
  transport::zip::LogSavings(links_.savings());
}

}  // namespace rgpu::exec
