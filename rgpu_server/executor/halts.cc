#include "rgpu_server/executor/halts.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/role.h"

namespace rgpu::exec {

namespace {

using std::chrono::microseconds;

constexpr size_t kPageBytes = 64U << 10;
// Words that the device waits for lie apart, so that a write to one does not disturb the others.
constexpr size_t kApartBytes = 64;
// Pause between two looks: first, and at most.
constexpr microseconds kShortest{20};
constexpr microseconds kLongest{200};
constexpr unsigned long kSlackNs = 1'000;
constexpr unsigned int kOperations = 3;

// RGPU_WORKER_HALTS=words has an emulated device halt as NVIDIA's driver does, for tests.
bool UsesWords(const Driver& driver) {
  if (driver->cuStreamBatchMemOp_v2 == nullptr) return false;
  const char* asked = std::getenv("RGPU_WORKER_HALTS");
  return !driver.emulated || (asked != nullptr && std::string_view(asked) == "words");
}

uint32_t Read(uint32_t& word) {
  return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
}

void Set(uint32_t& word, uint32_t value) {
  std::atomic_ref<uint32_t>(word).store(value, std::memory_order_release);
}

CUstreamBatchMemOpParams Write(CUdeviceptr address, uint32_t value) {
  CUstreamBatchMemOpParams params{};
  params.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  params.writeValue.address = address;
  params.writeValue.value = value;
  return params;
}

CUstreamBatchMemOpParams WaitUntil(CUdeviceptr address, uint32_t value) {
  CUstreamBatchMemOpParams params{};
  params.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  params.waitValue.address = address;
  params.waitValue.value = value;
  params.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return params;
}

std::array<CUstreamBatchMemOpParams, kOperations> OperationsOf(const Halt& halt) {
  const CUdeviceptr reached = halt.address + offsetof(HaltWords, reached);
  const CUdeviceptr go = halt.address + offsetof(HaltWords, go);
  return {Write(reached, 1), WaitUntil(go, 1), Write(go, 0)};
}

}  // namespace

// --- the watch

void HaltWatch::Expect(const std::shared_ptr<Halt>& halt) {
  const std::lock_guard lock(mutex_);
  expected_.push_back(halt);
  if (!std::exchange(started_, true)) NeedThread("rgpu-halts", [this] { Watch(); });
  expected_changed_.notify_one();
}

void HaltWatch::Forget(const Halt& halt) {
  const std::lock_guard lock(mutex_);
  const auto same = [&](const auto& other) { return other.get() == &halt; };
  const auto found = std::ranges::find_if(expected_, same);
  if (found != expected_.end()) expected_.erase(found);
}

bool HaltWatch::Look(std::vector<std::shared_ptr<Halt>>* reached) {
  std::erase_if(expected_, [&](const std::shared_ptr<Halt>& halt) {
    if (Read(halt->words->reached) == 0) return false;
    // The stream waits, so only this thread writes the word now.
    Set(halt->words->reached, 0);
    reached->push_back(halt);
    return true;
  });
  return !reached->empty();
}

void HaltWatch::Watch() {
  prctl(PR_SET_TIMERSLACK, kSlackNs);
  std::unique_lock lock(mutex_);
  microseconds pause = kShortest;
  std::vector<std::shared_ptr<Halt>> reached;
  for (;;) {
    if (expected_.empty()) {
      expected_changed_.wait(lock, [this] { return !expected_.empty(); });
      pause = kShortest;
    }
    if (Look(&reached)) {
      for (const auto& halt : reached) Hand(halt);
      reached.clear();
      pause = kShortest;
    }
    // After a sticky error no stream goes on.
    if (executor_.sticky() != CUDA_SUCCESS) expected_.clear();
    if (expected_changed_.wait_for(lock, pause) == std::cv_status::timeout) {
      pause = std::min(pause * 2, kLongest);
    } else {
      pause = kShortest;
    }
  }
}

void HaltWatch::Hand(const std::shared_ptr<Halt>& halt) {
  due_.push_back(halt);
  if (static_cast<size_t>(idle_threads_) >= due_.size()) {
    handed_.notify_one();
  } else {
    NeedThread("rgpu-halted", [this] { RunFunctions(); });
  }
}

void HaltWatch::RunFunctions() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!due_.empty()) {
      const std::shared_ptr<Halt> halt = std::move(due_.front());
      due_.erase(due_.begin());
      lock.unlock();
      // The function may let the memory of its argument go, but never the halt.
      halt->function(halt->argument);
      Set(halt->words->go, 1);
      lock.lock();
    }
    ++idle_threads_;
    handed_.wait(lock, [this] { return !due_.empty(); });
    --idle_threads_;
  }
}

// --- the halts of a context

// Words in page-locked memory, which the driver frees with its context.
class Halts::Memory {
 public:
  using Words = std::pair<HaltWords*, CUdeviceptr>;

  // Callable without the executor's lock: the last owner of a halt returns its words.
  void Add(HaltWords* words, CUdeviceptr address) {
    const std::lock_guard lock(mutex_);
    free_.emplace_back(words, address);
  }
  bool empty() {
    const std::lock_guard lock(mutex_);
    return free_.empty();
  }
  // Only holders of the executor's lock take words, so what was not empty has some.
  Words Take() {
    const std::lock_guard lock(mutex_);
    const Words taken = free_.back();
    free_.pop_back();
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<Words> free_;
};

Halts::Halts(const Driver& driver, std::shared_ptr<HaltWatch> watch)
    : driver_(driver),
      watch_(std::move(watch)),
      words_(UsesWords(driver)),
      memory_(std::make_shared<Memory>()) {}

CUresult Halts::AddPage() {
  void* page = nullptr;
  CUdeviceptr address = 0;
  CUresult result = driver_->cuMemHostAlloc(&page, kPageBytes,
                                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) result = driver_->cuMemHostGetDevicePointer_v2(&address, page, 0);
  if (result != CUDA_SUCCESS) return result;
  std::memset(page, 0, kPageBytes);
  for (size_t at = 0; at < kPageBytes; at += kApartBytes) {
    auto* words = reinterpret_cast<HaltWords*>(static_cast<uint8_t*>(page) + at);
    memory_->Add(words, address + at);
  }
  return CUDA_SUCCESS;
}

// A stream has passed its halt when the device has written 0 to `go`.
void Halts::Recycle() {
  std::erase_if(passing_, [](std::shared_ptr<Halt>& halt) {
    if (halt.use_count() != 1 || Read(halt->words->go) != 0) return false;
    halt.reset();  // returns its words
    return true;
  });
}

CUresult Halts::Take(std::shared_ptr<Halt>* halt) {
  if (memory_->empty()) Recycle();
  if (memory_->empty()) {
    if (const CUresult result = AddPage(); result != CUDA_SUCCESS) return result;
  }
  const auto [words, address] = memory_->Take();
  *halt = {new Halt{words, address}, [memory = memory_](const Halt* gone) {
             memory->Add(gone->words, gone->address);
             delete gone;
           }};
  return CUDA_SUCCESS;
}

CUresult Halts::Launch(CUstream stream, CUhostFn function, void* argument) {
  if (!words_) return driver_->cuLaunchHostFunc(stream, function, argument);
  std::shared_ptr<Halt> halt;
  CUresult result = Take(&halt);
  if (result != CUDA_SUCCESS) return result;
  halt->function = function;
  halt->argument = argument;
  auto operations = OperationsOf(*halt);
  watch_->Expect(halt);
  result = driver_->cuStreamBatchMemOp_v2(stream, kOperations, operations.data(), 0);
  if (result != CUDA_SUCCESS) {
    watch_->Forget(*halt);
    return result;
  }
  passing_.push_back(std::move(halt));
  return CUDA_SUCCESS;
}

CUresult Halts::AddNode(CUgraph graph, CUcontext context, CUhostFn function, void* argument,
                        CUgraphNode* node, std::shared_ptr<Halt>* halt) {
  if (!words_) {
    CUDA_HOST_NODE_PARAMS params{};
    params.fn = function;
    params.userData = argument;
    return driver_->cuGraphAddHostNode(node, graph, nullptr, 0, &params);
  }
  if (const CUresult result = Take(halt); result != CUDA_SUCCESS) return result;
  (*halt)->function = function;
  (*halt)->argument = argument;
  auto operations = OperationsOf(**halt);
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  params.ctx = context;
  params.count = kOperations;
  params.paramArray = operations.data();
  return driver_->cuGraphAddBatchMemOpNode(node, graph, nullptr, 0, &params);
}

void Halts::Abandon() {
  for (const auto& halt : passing_) watch_->Forget(*halt);
  passing_.clear();
}

}  // namespace rgpu::exec
