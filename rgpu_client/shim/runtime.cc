#include "rgpu_client/shim/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "rgpu_client/shim/calls/side_streams.h"
#include "rgpu_client/shim/calls/twins.h"
#include "rgpu_client/shim/credit_keeper.h"
#include "rgpu_client/shim/flusher.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/host_functions.h"
#include "rgpu_client/shim/interrupts.h"
#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/paged/fault_handler.h"
#include "rgpu_client/shim/pump.h"
#include "rgpu_client/shim/refusals.h"
#include "rgpu_client/shim/say.h"
#include "rgpu_client/shim/trace.h"
#include "rgpu_common/native/base/log.h"

namespace rgpu::shim {
namespace {

std::atomic<Phase> g_phase{Phase::kNew};
std::atomic<bool> g_open_failed{false};
// A pointer, because a forked child needs a new mutex: a thread that exists only in the parent may
// hold the old one.
std::mutex* g_open_mutex = new std::mutex;
std::string* g_last_complaint = new std::string;

// A byte that is 1, in a page that the kernel zeroes in a forked child (MADV_WIPEONFORK).
volatile uint8_t* g_own_page = nullptr;
uint8_t g_no_page = 1;

void ForkedChild() {
  *g_own_page = 1;
  const SessionList sessions = WithdrawSessions();
  if (g_phase.load() != Phase::kExiting) g_phase = Phase::kNew;
  g_open_mutex = new std::mutex;
  CreditKeeper::Forget();
  Flusher::Forget();
  Pump::Forget();
  HostFunctions::Forget();
  FaultHandler::Forget();
  g_paged_bits = 0;
  ForgetGraphs();
  ForgetTwins();
  ForgetSideStreams();
  NewThreadGeneration();
  ResetTrace();
  ForgetRefusals();
  for (Session* const session : sessions) session->Abandon();
}

void OnExit() {
  CheckForFork();
  g_phase = Phase::kExiting;
  HostFunctions::End();
  const SessionList sessions = LiveSessions();
  WriteTrace();
  for (Session* const session : sessions) session->End();
}

void TellThreadGone(ThreadState& thread) {
  if (g_phase.load() != Phase::kReady) return;
  for (Session* const session : LiveSessions()) {
    if (!thread.sent[session->number()].spoke) continue;
    session->channel().StreamGoes(kWirePerThreadStream, thread.number);
    session->stream_frees().StreamGoes(kWirePerThreadStream, thread.number);
    // A server that does not read now must not hold the thread up.
    PostOptions options;
    options.soon = true;
    session->channel().Post<op_rgpuThreadGone>({&thread, 0}, {thread.number}, options);
    session->ForgetThread(thread.number);
  }
}

__attribute__((constructor)) void Load() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool wiped = page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0;
  g_own_page = wiped ? static_cast<uint8_t*>(page) : &g_no_page;
  *g_own_page = 1;
  pthread_atfork(nullptr, nullptr, &ForkedChild);
  SetThreadGoneHook(&TellThreadGone);
  base::SetLogName("shim");
  base::SetLogLevelFromEnvironment();
  if (const char* path = getenv("RGPU_TRACE")) StartTrace(path);
}

void Complain(const std::string& sentence) {
  if (sentence == *g_last_complaint) return;
  *g_last_complaint = sentence;
  Say("%s", sentence.c_str());
}

// Prints the remarks once per process, because a program without a device may retry cuInit many
// times.
void Remark(const std::vector<std::string>& sentences) {
  static bool said = false;
  if (said) return;
  for (const std::string& sentence : sentences) Say("%s", sentence.c_str());
  said = true;
}

}  // namespace

Phase CurrentPhase() { return g_phase.load(std::memory_order_acquire); }

void CheckForFork() {
  if (__builtin_expect(*g_own_page == 0, 0)) ForkedChild();
}

bool ServerConfigured() {
  const char* server = getenv("RGPU_SERVER");
  const char* devices = getenv("RGPU_DEVICE");
  return (server != nullptr && *server != '\0') ||
         (devices != nullptr && strchr(devices, '@') != nullptr);
}

namespace {

// What a device lacks that is one of several. Empty: nothing.
std::string Unfit(const Session& session) {
  if (session.welcome().devices.empty()) return "its server granted no device";
  if (session.band().size != 0) return {};
  return "its server does not keep its addresses apart from those of other devices, as a server "
         "with emulated devices does; name one device";
}

// The devices of all sessions become one table. On failure `*sentence` says why there is none.
CUresult ShareDevices(const Settings& settings, const std::vector<Session*>& sessions,
                      DeviceTable& devices, std::string* sentence) {
  std::vector<const wire::Welcome*> welcomes;
  size_t granted = 0;
  for (const Session* session : sessions) {
    welcomes.push_back(&session->welcome());
    granted += session->welcome().devices.size();
    if (sessions.size() == 1) continue;
    const std::string why = Unfit(*session);
    if (why.empty()) continue;
    *sentence = "device " + settings.devices[session->number()].text() +
                " cannot be one of several: " + why;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  devices.Fill(welcomes, settings);
  if (devices.count() == 0) {
    *sentence = "CUDA_VISIBLE_DEVICES=" + settings.visible_devices + " leaves no device of the " +
                std::to_string(granted) + " that the server granted";
    return CUDA_ERROR_NO_DEVICE;
  }
  for (Session* const session : sessions) session->AddDefaultPools();
  return CUDA_SUCCESS;
}

// Opens a session for each device that the settings name. After a failure the result holds those
// that are open.
std::vector<Session*> OpenAll(const Settings& settings, CUresult* status, std::string* sentence) {
  std::vector<Session*> sessions;
  auto& devices = *new DeviceTable;  // as the sessions, it is there until the process ends
  for (size_t i = 0; i < settings.devices.size(); ++i) {
    Session* const session = Session::Open(SettingsOfDevice(settings, i), static_cast<unsigned>(i),
                                           &devices, status, sentence);
    if (session == nullptr) {
      if (settings.devices.size() > 1) {
        *sentence = "device " + settings.devices[i].text() + ": " + *sentence;
      }
      return sessions;
    }
    sessions.push_back(session);
  }
  *status = ShareDevices(settings, sessions, devices, sentence);
  return sessions;
}

CUresult TryToOpen() {
  const std::lock_guard lock(*g_open_mutex);
  if (CurrentSession() != nullptr) return CUDA_SUCCESS;
  const Settings settings = ReadSettings();
  if (!settings.error.empty()) {
    Complain(settings.error);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (settings.server.empty() && settings.uses_server()) {
    Complain(
        "no server is configured, so there is no CUDA device: set RGPU_SERVER=HOST:PORT or start "
        "the program with 'rgpu run --server HOST:PORT -- PROGRAM'");
    return CUDA_ERROR_NO_DEVICE;
  }
  Remark(settings.remarks);
  CUresult status = CUDA_SUCCESS;
  std::string sentence;
  const std::vector<Session*> sessions = OpenAll(settings, &status, &sentence);
  if (status != CUDA_SUCCESS) {
    for (Session* const session : sessions) session->End();
    Complain(sentence);
    return status;
  }
  NewThreadGeneration();
  PublishSessions(sessions);
  WatchInterrupts();
  static const bool registered = atexit(&OnExit) == 0;
  static_cast<void>(registered);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult OpenSession() {
  const CUresult status = TryToOpen();
  g_open_failed = status != CUDA_SUCCESS;
  return status;
}

OpenState CurrentOpenState() {
  if (CurrentSession() != nullptr) return OpenState::kOpen;
  return g_open_failed.load() ? OpenState::kFailed : OpenState::kNotTried;
}

CUresult Initialize() {
  if (const CUresult status = OpenSession(); status != CUDA_SUCCESS) return status;
  Phase expected = Phase::kNew;
  g_phase.compare_exchange_strong(expected, Phase::kReady);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
