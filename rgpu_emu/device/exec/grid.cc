#include "rgpu_emu/device/exec/grid.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "rgpu_emu/device/exec/block_runner.h"
#include "rgpu_emu/device/exec/fault_guard.h"
#include "rgpu_emu/device/exec/gang.h"
#include "rgpu_emu/device/exec/grid_state.h"
#include "rgpu_emu/device/exec/processors.h"
#include "rgpu_emu/device/exec/runners.h"

namespace rgpu::emu {
namespace {

using Clock = std::chrono::steady_clock;

// How long StopAll waits. A kernel notices the stop word at the end of a loop iteration.
constexpr auto kStopTime = std::chrono::seconds(10);
// Of lines of asserts that have failed. As for printf, the newest are kept.
constexpr uint64_t kAssertBytes = 1 << 20;
// A frame of compiled code may be large and must not step over the guard.
constexpr size_t kStackGuardBytes = 1 << 20;

// Starts a thread that receives none of the application's signals. Returns false if the system has
// no thread left.
bool StartThread(void* (*function)(void*), void* argument, pthread_t* thread) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, signal);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kKernelStackBytes);
  pthread_attr_setguardsize(&attributes, kStackGuardBytes);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const int failed = pthread_create(thread, &attributes, function, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return failed == 0;
}

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  char* end = nullptr;
  const uint64_t value = strtoull(text, &end, 10);
  return *end == 0 ? value : otherwise;
}

uint64_t HostileSeed() {
  const char* text = getenv("RGPU_EMU_TIMING");
  if (text == nullptr || std::strncmp(text, "hostile", 7) != 0) return 0;
  const uint64_t seed = text[7] == ':' ? strtoull(text + 8, nullptr, 10) : 0;
  return seed * 2 + 1;
}

RunnerOptions Complete(RunnerOptions options) {
  if (options.threads == 0) options.threads = std::max(1u, std::thread::hardware_concurrency());
  options.threads = std::min(options.threads, 1024u);
  if (options.sm_count == 0) options.sm_count = options.threads;
  return options;
}

}  // namespace

RunnerOptions RunnerOptionsFromEnvironment() {
  RunnerOptions options;
  options.threads =
      static_cast<unsigned>(std::min<uint64_t>(NumberFromEnvironment("RGPU_EMU_THREADS", 0), 1024));
  options.timeout_seconds =
      static_cast<double>(NumberFromEnvironment("RGPU_EMU_LAUNCH_TIMEOUT", 60));
  options.hostile_seed = HostileSeed();
  return options;
}

class GridRunner::Impl {
 public:
  explicit Impl(const RunnerOptions& options)
      : options_(Complete(options)),
        processors_(options_.threads),
        printf_(options.printf_bytes),
        asserts_(kAssertBytes),
        runners_(options_) {}
  ~Impl();

  CUresult Run(const Launch& launch, FaultInfo* fault);
  void FlushPrintf();
  void Cancel(const void* owner, CUresult result);
  void StopAll(const void* owner, CUresult result);
  Runners& runners() { return runners_; }
  PrintfFifo& printf() { return printf_; }
  const RunnerOptions& options() const { return options_; }
  bool forked() const { return getpid() != pid_; }

 private:
  CUresult Enter(Grid* grid);
  void RunHere(Grid* grid);
  void RunGang(Grid* grid);
  void WakeStarved();
  void Leave(Grid* grid);
  void StartThreads(bool pool);
  Grid* Pick();
  void Work();
  void Watch();
  void Stop(const void* owner, CUresult result, const char* why);
  bool Runs(const void* owner) const;

  const RunnerOptions options_;
  const Processors processors_;
  PrintfFifo printf_;
  PrintfFifo asserts_;
  const pid_t pid_ = getpid();
  std::mutex mutex_;
  std::condition_variable work_;   // pool threads
  std::condition_variable ended_;  // callers whose grid still has pool threads, and StopAll
  std::condition_variable watch_;
  std::list<Grid*> active_;
  std::atomic<bool> contended_{false};  // several grids want pool threads
  Runners runners_;
  std::vector<pthread_t> threads_;
  pthread_t watchdog_{};
  bool pool_started_ = false;
  std::atomic<unsigned> settled_{0};  // pool threads that have started
  bool watchdog_started_ = false;
  bool watchdog_idle_ = false;
  bool stopping_ = false;
  uint32_t stops_ = 0;    // threads in StopAll
  uint32_t starved_ = 0;  // pool threads that found no memory for a block
  uint32_t grids_ = 0;
  CUresult cancelled_ = CUDA_SUCCESS;
};

GridRunner::Impl::~Impl() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return active_.empty(); });
    stopping_ = true;
  }
  work_.notify_all();
  watch_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  if (watchdog_started_) pthread_join(watchdog_, nullptr);
}

CUresult GridRunner::Impl::Run(const Launch& launch, FaultInfo* fault) {
  InstallFaultHandlers();
  Grid grid(launch, options_, &printf_, &asserts_,
            __atomic_add_fetch(&grids_, 1, __ATOMIC_RELAXED));
  if (const CUresult refused = Enter(&grid); refused != CUDA_SUCCESS) {
    *fault = {refused, 0, {0, 0, 0}, ""};
    return refused;
  }
  if (launch.cooperative) {
    RunGang(&grid);
  } else {
    RunHere(&grid);
  }
  Leave(&grid);
  FlushPrintf();
  *fault = grid.TakeFault();
  return fault->result;
}

void GridRunner::Impl::FlushPrintf() {
  DeviceServices* const services = options_.services;
  const auto print = [services](std::string_view text) {
    if (services != nullptr) services->Print(text);
  };
  const auto print_asserts = [services](std::string_view text) {
    if (services != nullptr) services->PrintAsserts(text);
  };
  printf_.Flush(print);
  asserts_.Flush(print_asserts);
}

CUresult GridRunner::Impl::Enter(Grid* grid) {
  bool wake = false;
  bool alone = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (cancelled_ != CUDA_SUCCESS) return cancelled_;
    const std::atomic<int>* failed = grid->launch().failed;
    if (failed != nullptr && failed->load() != CUDA_SUCCESS) {
      return static_cast<CUresult>(failed->load());
    }
    active_.push_back(grid);
    alone = active_.size() == 1;
    contended_.store(!alone, std::memory_order_relaxed);
    wake = grid->blocks() > 1 && options_.threads > 1;
    StartThreads(wake);
    if (watchdog_idle_) watch_.notify_all();
  }
  if (!wake) return CUDA_SUCCESS;
  // If several grids run, their callers may use any processor.
  if (alone) processors_.MakeRoom();
  if (grid->blocks() == 2) {
    work_.notify_one();
  } else {
    work_.notify_all();
  }
  return CUDA_SUCCESS;
}

void GridRunner::Impl::RunHere(Grid* grid) {
  bool waited = false;
  std::unique_ptr<BlockRunner> runner = runners_.Await(grid, &waited);
  if (waited) WakeStarved();
  if (runner != nullptr && runner->Prepare(*grid)) {
    runner->RunBlocks(grid, nullptr);
  } else if (runner != nullptr || !(grid->stopped() || grid->exhausted())) {
    grid->FailForMemory();
  }
  if (runner != nullptr) runners_.Return(std::move(runner));
}

// Pool threads may have been refused memory while a grid waited.
void GridRunner::Impl::WakeStarved() {
  const std::lock_guard lock(mutex_);
  if (starved_ != 0) work_.notify_all();
}

void GridRunner::Impl::RunGang(Grid* grid) {
  bool waited = false;
  std::vector<std::unique_ptr<BlockRunner>> runners = runners_.AwaitAll(grid, &waited);
  if (waited) WakeStarved();
  const uint64_t workspace =
      runners.empty() ? 0 : options_.windows->ReserveWindow(sizeof(GridWorkspace));
  bool room = workspace != 0;
  for (const auto& runner : runners) room = room && runner->Prepare(*grid);
  if (room) {
    *reinterpret_cast<GridWorkspace*>(workspace) = {sizeof(GridWorkspace), 0};
    grid->SetWorkspace(workspace);
    Gang gang(grid, runners);
    {
      const std::lock_guard lock(mutex_);
      grid->gang = &gang;
    }
    work_.notify_all();
    gang.Run(nullptr);
    std::unique_lock lock(mutex_);
    grid->gang = nullptr;
    ended_.wait(lock, [grid] { return grid->workers == 0; });
  } else if (!grid->stopped()) {
    grid->FailForMemory();
  }
  if (workspace != 0) options_.windows->ReleaseWindow(workspace, sizeof(GridWorkspace));
  for (auto& runner : runners) runners_.Return(std::move(runner));
}

void GridRunner::Impl::Leave(Grid* grid) {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [grid] { return grid->workers == 0; });
  active_.remove(grid);
  contended_.store(active_.size() > 1, std::memory_order_relaxed);
  if (active_.empty() || stops_ != 0) ended_.notify_all();
  if (starved_ != 0) work_.notify_all();
}

// Threads start with the first grid that needs them, so that an idle worker has none.
void GridRunner::Impl::StartThreads(bool pool) {
  if (!watchdog_started_) {
    const auto run = [](void* self) -> void* {
      static_cast<Impl*>(self)->Watch();
      return nullptr;
    };
    watchdog_started_ = StartThread(run, this, &watchdog_);
  }
  if (!pool || pool_started_) return;
  pool_started_ = true;
  const auto run = [](void* self) -> void* {
    static_cast<Impl*>(self)->Work();
    return nullptr;
  };
  // The thread that calls RunGrid also runs blocks.
  for (unsigned i = 1; i < options_.threads; ++i) {
    pthread_t thread;
    if (!StartThread(run, this, &thread)) return;
    threads_.push_back(thread);
  }
}

// Returns the next grid with blocks left, in turn.
Grid* GridRunner::Impl::Pick() {
  for (auto at = active_.begin(); at != active_.end(); ++at) {
    Grid* grid = *at;
    if (grid->exhausted() || grid->stopped() || grid->blocks() == 1) continue;
    if (grid->launch().cooperative && (grid->gang == nullptr || !grid->gang->WantsHelp())) continue;
    active_.splice(active_.end(), active_, at);
    return grid;
  }
  return nullptr;
}

void GridRunner::Impl::Work() {
  processors_.Settle(settled_.fetch_add(1));
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    Grid* grid = nullptr;
    work_.wait(lock, [&] { return stopping_ || (grid = Pick()) != nullptr; });
    if (grid == nullptr) return;
    ++grid->workers;
    if (Gang* gang = grid->gang; gang != nullptr) {
      lock.unlock();
      gang->Run(&contended_);
      lock.lock();
      if (--grid->workers == 0) ended_.notify_all();
      continue;
    }
    lock.unlock();
    std::unique_ptr<BlockRunner> runner = runners_.Try(*grid);
    const bool room = runner != nullptr && runner->Prepare(*grid);
    if (room) runner->RunBlocks(grid, &contended_);
    if (runner != nullptr) runners_.Return(std::move(runner));
    lock.lock();
    if (--grid->workers == 0) ended_.notify_all();
    if (room) continue;
    // There is no memory for another block now; the grid's own thread runs on without this one.
    ++starved_;
    work_.wait(lock);
    --starved_;
  }
}

// Sleeps until the earliest time at which a grid may have exceeded its time.
void GridRunner::Impl::Watch() {
  const auto timeout = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options_.timeout_seconds));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (Grid* grid : active_) {
      // A grid that waits for memory starts now at the earliest.
      const auto started = std::min(grid->started(), now);
      const auto limit = timeout.count() > 0 ? started + timeout : Clock::time_point::max();
      const auto end = std::min(limit, grid->assert_end());
      if (end > now) {
        // An assert of a grid that runs may fail at any time.
        next = std::min({next, end, now + Clock::duration(Grid::kAssertTime)});
      } else if (!grid->stopped()) {
        grid->Fail({CUDA_ERROR_LAUNCH_TIMEOUT,
                    0,
                    {0, 0, 0},
                    "kernel " + std::string(grid->launch().name) +
                        " ran longer than emulated.launch_seconds of the server and was stopped"});
      }
    }
    watchdog_idle_ = next == Clock::time_point::max();
    if (watchdog_idle_) {
      watch_.wait(lock);
    } else {
      watch_.wait_until(lock, next);
    }
    watchdog_idle_ = false;
  }
}

// The lock is held.
void GridRunner::Impl::Stop(const void* owner, CUresult result, const char* why) {
  if (owner == nullptr) cancelled_ = result;
  for (Grid* grid : active_) {
    if (owner != nullptr && grid->launch().owner != owner) continue;
    const std::string name = grid->launch().name;
    grid->Fail({result, 0, {0, 0, 0}, *why == 0 ? "" : "kernel " + name + " was stopped " + why});
  }
  runners_.Wake();
}

void GridRunner::Impl::Cancel(const void* owner, CUresult result) {
  const std::lock_guard lock(mutex_);
  Stop(owner, result, "because its context ended");
}

bool GridRunner::Impl::Runs(const void* owner) const {
  return std::any_of(active_.begin(), active_.end(), [owner](const Grid* grid) {
    return owner == nullptr || grid->launch().owner == owner;
  });
}

void GridRunner::Impl::StopAll(const void* owner, CUresult result) {
  std::unique_lock lock(mutex_);
  Stop(owner, result, "");
  ++stops_;
  ended_.wait_for(lock, kStopTime, [&] { return !Runs(owner); });
  --stops_;
}

GridRunner::GridRunner(const RunnerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
GridRunner::~GridRunner() {
  // A forked child has none of the threads that the destructor waits for.
  if (impl_->forked()) static_cast<void>(impl_.release());
}
CUresult GridRunner::RunGrid(const Launch& launch, FaultInfo* fault) {
  return impl_->Run(launch, fault);
}
void GridRunner::Cancel(const void* owner, CUresult result) { impl_->Cancel(owner, result); }
void GridRunner::StopAll(const void* owner, CUresult result) { impl_->StopAll(owner, result); }
bool GridRunner::Fits(const Kernel& kernel, uint64_t threads, uint64_t shared_bytes,
                      uint64_t blocks) const {
  const BlockMemory need = BlockMemory::NeededFor(kernel, threads, shared_bytes);
  return FramesBytes(kernel, threads) <= kMaxFramesBytes &&
         need.shared + need.frames <= impl_->runners().base_bytes() / blocks;
}
void GridRunner::AddRoom(uint64_t bytes) { impl_->runners().AddRoom(bytes); }
void GridRunner::TakeRoom(uint64_t bytes) { impl_->runners().TakeRoom(bytes); }
void GridRunner::FlushPrintf() { impl_->FlushPrintf(); }
void GridRunner::SetPrintfBytes(uint64_t bytes) { impl_->printf().SetCapacity(bytes); }
unsigned GridRunner::threads() const { return impl_->options().threads; }

}  // namespace rgpu::emu
