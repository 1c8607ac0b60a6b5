#include "rgpu_client/shim/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "rgpu_client/shim/credit_keeper.h"
#include "rgpu_client/shim/flusher.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/host_functions.h"
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
std::atomic<Session*> g_session{nullptr};
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
  Session* session = g_session.exchange(nullptr);
  if (g_phase.load() != Phase::kExiting) g_phase = Phase::kNew;
  g_open_mutex = new std::mutex;
  CreditKeeper::Forget();
  Flusher::Forget();
  Pump::Forget();
  HostFunctions::Forget();
  FaultHandler::Forget();
  g_paged_bits = 0;
  ForgetGraphs();
  NewThreadGeneration();
  ResetTrace();
  ForgetRefusals();
  if (session != nullptr) session->Abandon();
}

void OnExit() {
  CheckForFork();
  g_phase = Phase::kExiting;
  if (Session* session = g_session.load()) {
    WriteTrace(*session);
    session->End();
  }
}

void TellThreadGone(ThreadState& thread) {
  Session* session = g_session.load();
  if (session == nullptr || g_phase.load() != Phase::kReady) return;
  session->channel().StreamGoes(kWirePerThreadStream, thread.number);
  session->channel().Post<op_rgpuThreadGone>({&thread, 0}, {thread.number});
  session->ForgetThread(thread.number);
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
Session* CurrentSession() { return g_session.load(std::memory_order_acquire); }

void CheckForFork() {
  if (__builtin_expect(*g_own_page == 0, 0)) ForkedChild();
}

bool ServerConfigured() {
  const char* server = getenv("RGPU_SERVER");
  return server != nullptr && *server != '\0';
}

namespace {

CUresult TryToOpen() {
  const std::lock_guard lock(*g_open_mutex);
  if (g_session.load() != nullptr) return CUDA_SUCCESS;
  const Settings settings = ReadSettings();
  if (!settings.error.empty()) {
    Complain(settings.error);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (settings.server.empty()) {
    Complain(
        "no server is configured, so there is no CUDA device: set RGPU_SERVER=HOST:PORT or start "
        "the "
        "program with 'rgpu run --server HOST:PORT -- PROGRAM'");
    return CUDA_ERROR_NO_DEVICE;
  }
  Remark(settings.remarks);
  CUresult status = CUDA_SUCCESS;
  std::string sentence;
  Session* session = Session::Open(settings, &status, &sentence);
  if (session == nullptr) {
    Complain(sentence);
    return status;
  }
  NewThreadGeneration();
  g_session.store(session, std::memory_order_release);
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
  if (g_session.load() != nullptr) return OpenState::kOpen;
  return g_open_failed.load() ? OpenState::kFailed : OpenState::kNotTried;
}

CUresult Initialize() {
  if (const CUresult status = OpenSession(); status != CUDA_SUCCESS) return status;
  Phase expected = Phase::kNew;
  g_phase.compare_exchange_strong(expected, Phase::kReady);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
