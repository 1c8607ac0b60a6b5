#include "rgpu_emu/device/exec/block_runner.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "rgpu_common/native/base/lengths.h"
#include "rgpu_emu/device/exec/texture_ops.h"

namespace rgpu::emu {
namespace {

constexpr uint64_t kPage = 65536;  // allocations grow in these steps; a multiple of every page size
constexpr uint64_t kFrameAlign = 16;
// Shared memory is allocated in these steps on a device of 8.0 (PTX manual, %total_smem_size).
// Programs read a little past what they asked for, as Dr.Jit's reductions do.
constexpr uint64_t kSharedUnit = 128;
constexpr uint64_t kStatesBytes = sizeof(ThreadState) * kMaxBlockThreads + sizeof(BlockScheduler);
// Codes of LeaveGuarded that are not CUresults.
constexpr int kDeadlock = -1;
constexpr int kBadWarpOp = -2;
constexpr int kPartialWarp = -3;
// Accesses outside the band are redirected to the guard page at its end, so nothing is known of the
// address that the kernel used.
constexpr char kOutside[] =
    "it accessed an address outside device memory, or outside its shared or local memory";

struct Sentence {
  int code;
  CUresult result;
  const char* text;
};

constexpr Sentence kSentences[] = {
    {kDeadlock, CUDA_ERROR_LAUNCH_TIMEOUT,
     "every thread of the block waits at a barrier or warp operation for a thread that never "
     "arrives"},
    {kBadWarpOp, CUDA_ERROR_LAUNCH_FAILED,
     "a warp operation's membermask lacks the thread that runs it, or a barrier number is above "
     "15"},
    {kPartialWarp, CUDA_ERROR_LAUNCH_FAILED,
     "a matrix instruction (mma, wmma, ldmatrix, stmatrix, movmatrix) needs all 32 threads of the "
     "warp, and some have ended or do not exist"},
    {static_cast<int>(TextureFault::kNoTexture), CUDA_ERROR_ILLEGAL_ADDRESS,
     "a texture instruction was given a value that is no texture object"},
    {static_cast<int>(TextureFault::kNoSurface), CUDA_ERROR_ILLEGAL_ADDRESS,
     "a surface instruction was given a value that is no surface object"},
    {static_cast<int>(TextureFault::kGeometry), CUDA_ERROR_ILLEGAL_ADDRESS,
     "a texture or surface instruction was given an object of another geometry (1D, 2D, 3D, "
     "layered, cubemap)"},
    {static_cast<int>(TextureFault::kOutside), CUDA_ERROR_ILLEGAL_ADDRESS,
     "a surface instruction with .trap was given a place outside the surface"},
    {static_cast<int>(TextureFault::kMisaligned), CUDA_ERROR_MISALIGNED_ADDRESS,
     "the byte offset of a surface instruction is no multiple of the bytes that it accesses"},
    {static_cast<int>(TextureFault::kFormat), CUDA_ERROR_LAUNCH_FAILED,
     "sured.p was given a surface whose texels are not one 32-bit integer, or two for .b64"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS,
     "it gave printf or assert an address outside device memory"},
    {CUDA_ERROR_INVALID_PC, CUDA_ERROR_INVALID_PC,
     "it called through a function pointer that points to no function"},
    {CUDA_ERROR_ASSERT, CUDA_ERROR_ASSERT, "a device-side assert failed"},
    {CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, "it executed trap"},
    {kTrapStackFull, CUDA_ERROR_LAUNCH_FAILED,
     "the stack of a thread is full: functions that call themselves have 32 KiB of local memory, "
     "and alloca has 16 KiB"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT, "it was stopped"},
};

void LeaveIfBad(BlockEnd end) {
  if (end == BlockEnd::kDeadlock) LeaveGuarded(kDeadlock);
  if (end == BlockEnd::kBadWarpOp) LeaveGuarded(kBadWarpOp);
  if (end == BlockEnd::kPartialWarp) LeaveGuarded(kPartialWarp);
}

uint64_t More(uint64_t need, uint64_t have) { return need > have ? need - have : 0; }

}  // namespace

uint64_t FramesBytes(const Kernel& kernel, uint64_t threads) {
  if (kernel.kind() != kKernelCoroutine) return 0;
  return base::RoundedUp(kernel.frame_bytes(), kFrameAlign) * threads;
}

BlockMemory BlockMemory::NeededFor(const Kernel& kernel, uint64_t threads, uint64_t shared_bytes) {
  BlockMemory need;
  // Kernels without shared memory get a window too, so that a stray access hits its guard page.
  need.shared = base::RoundedUp(std::max<uint64_t>(shared_bytes, 1), kPage);
  need.local = base::RoundedUp(kernel.local_bytes() * threads, kPage);
  if (kernel.kind() == kKernelCoroutine) {
    need.frames = base::RoundedUp(FramesBytes(kernel, threads), kPage) + kStatesBytes;
  }
  return need;
}

uint64_t BlockMemory::Beyond(const BlockMemory& held) const {
  return More(shared, held.shared) + More(local, held.local) + More(frames, held.frames);
}

BlockRunner::BlockRunner(const RunnerOptions& options, uint32_t smid)
    : windows_(options.windows), hostile_(options.hostile_seed + smid * 0x9e3779b97f4a7c15u) {
  block_.smid = smid;
}

BlockRunner::~BlockRunner() { Release(); }

BlockMemory BlockRunner::held() const {
  return {shared_.bytes, local_.bytes, frames_bytes_ + (threads_ != nullptr ? kStatesBytes : 0)};
}

void BlockRunner::Release() {
  ReleaseWindow(&shared_);
  ReleaseWindow(&local_);
  if (frames_ != nullptr) munmap(frames_, frames_bytes_);
  frames_ = nullptr;
  frames_bytes_ = 0;
  threads_.reset();
  scheduler_.reset();
}

void BlockRunner::ReleaseWindow(Window* window) {
  if (window->address != 0) windows_->ReleaseWindow(window->address, window->bytes);
  *window = {};
}

bool BlockRunner::Grow(Window* window, uint64_t bytes) {
  if (bytes <= window->bytes) return true;
  ReleaseWindow(window);
  const uint64_t address = windows_->ReserveWindow(bytes);
  if (address == 0) return false;
  *window = {address, bytes};
  return true;
}

bool BlockRunner::GrowFrames(uint64_t bytes) {
  if (bytes <= frames_bytes_) return true;
  if (bytes > kMaxFramesBytes) return false;
  if (frames_ != nullptr) munmap(frames_, frames_bytes_);
  frames_ = nullptr;
  frames_bytes_ = 0;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  frames_ = static_cast<uint8_t*>(memory);
  frames_bytes_ = bytes;
  return true;
}

bool BlockRunner::Prepare(const Grid& grid) {
  const Kernel& kernel = grid.kernel();
  const uint64_t threads = grid.threads_per_block();
  const BlockMemory need = BlockMemory::NeededFor(kernel, threads, grid.shared_bytes());
  if (!Grow(&shared_, need.shared) || !Grow(&local_, need.local)) return false;
  if (kernel.kind() == kKernelCoroutine) {
    if (!GrowFrames(need.frames - kStatesBytes)) return false;
    if (threads_ == nullptr) {
      threads_ = std::make_unique<ThreadState[]>(kMaxBlockThreads);
      scheduler_ = std::make_unique<BlockScheduler>();
    }
  }
  block_.launch = grid.info();
  block_.shared_base = shared_.address;
  block_.shared_bytes = static_cast<uint32_t>(base::RoundedUp(grid.shared_bytes(), kSharedUnit));
  block_.local_bytes = kernel.local_bytes();
  block_.local_base = local_.address;
  block_.threads = threads_.get();
  block_.thread_count = static_cast<uint32_t>(threads);
  return true;
}

uint32_t BlockRunner::NextHostile() {
  if (grid_->options().hostile_seed == 0) return 0;
  hostile_ = hostile_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(hostile_ >> 33) | 1u << 31;
}

void BlockRunner::RunBlocks(Grid* grid, const std::atomic<bool>* leave) {
  grid_ = grid;
  leave_ = leave;
  // Once per grid and not per block, because a program may wait for a thousand queued grids.
  if (const uint32_t hostile = NextHostile(); (hostile & 0xf00) == 0x100) {
    const struct timespec delay = {0, static_cast<long>(hostile & 0xff) * 200};
    nanosleep(&delay, nullptr);
  }
  Fault fault;
  const bool ended =
      RunGuarded([](void* self) { static_cast<BlockRunner*>(self)->Loop(); }, this, &fault);
  if (!ended) Report(fault);
}

void BlockRunner::Loop() {
  uint64_t begin = 0;
  uint64_t end = 0;
  while (grid_->Take(&begin, &end)) {
    for (uint64_t i = begin; i < end && !grid_->stopped(); ++i) RunOne(i);
    if (leave_ != nullptr && leave_->load(std::memory_order_relaxed)) return;
  }
}

void BlockRunner::SetIndex(uint64_t index) {
  const Launch& launch = grid_->launch();
  block_.ctaid[0] = static_cast<uint32_t>(index % launch.grid[0]);
  block_.ctaid[1] = static_cast<uint32_t>(index / launch.grid[0] % launch.grid[1]);
  block_.ctaid[2] = static_cast<uint32_t>(index / launch.grid[0] / launch.grid[1]);
}

ThreadFrames BlockRunner::Frames() const {
  return {frames_, base::RoundedUp(grid_->kernel().frame_bytes(), kFrameAlign)};
}

void BlockRunner::RunOne(uint64_t index) {
  SetIndex(index);
  const Kernel& kernel = grid_->kernel();
  const uint32_t hostile = NextHostile();
  if (kernel.kind() == kKernelLoop) return kernel.block_function()(&block_);
  LeaveIfBad(scheduler_->Run(&block_, kernel, Frames(), hostile));
}

void BlockRunner::Place(Grid* grid, uint64_t index) {
  grid_ = grid;
  started_ = false;
  SetIndex(index);
}

BlockRunner::Turn BlockRunner::RunTurn() {
  if (grid_->stopped()) return Turn::kEnded;
  turn_ = Turn::kEnded;
  Fault fault;
  const bool ended =
      RunGuarded([](void* self) { static_cast<BlockRunner*>(self)->TurnHere(); }, this, &fault);
  if (ended) return turn_;
  Report(fault);
  return Turn::kEnded;
}

void BlockRunner::TurnHere() {
  constexpr uint32_t kPasses = 64;
  const Kernel& kernel = grid_->kernel();
  // The threads of such a kernel wait for nothing.
  if (kernel.kind() == kKernelLoop) return kernel.block_function()(&block_);
  if (!started_) {
    started_ = true;
    scheduler_->Start(&block_, kernel, Frames(), NextHostile());
  }
  const BlockEnd end = scheduler_->Continue(kPasses);
  if (end == BlockEnd::kWaiting) turn_ = Turn::kWaited;
  if (end == BlockEnd::kTurnOver) turn_ = Turn::kRan;
  LeaveIfBad(end);
}

void BlockRunner::Report(const Fault& fault) {
  FaultInfo info;
  std::copy(block_.ctaid, block_.ctaid + 3, info.block);
  std::string why;
  if (fault.signal == 0) {
    info.result = static_cast<CUresult>(fault.code);
    why = "it ended with an error";
    for (const Sentence& sentence : kSentences) {
      if (sentence.code != fault.code) continue;
      info.result = sentence.result;
      why = sentence.text;
    }
  } else {
    const RunnerOptions& options = grid_->options();
    const bool memory = fault.signal == SIGSEGV || fault.signal == SIGBUS;
    const uint64_t offset = fault.address - options.band_base;
    const bool in_band = offset < options.band_bytes;
    const bool on_guard = offset - options.band_bytes < kPage || offset + kPage < kPage;
    info.result = CUDA_ERROR_LAUNCH_FAILED;
    why = "it recursed too deep or could not be executed (signal " + std::to_string(fault.signal) +
          ")";
    if (memory && in_band) {
      char text[64];
      std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(fault.address));
      info.result = CUDA_ERROR_ILLEGAL_ADDRESS;
      info.address = fault.address;
      why = std::string("it accessed device address ") + text + ", where nothing is allocated";
    } else if (memory && on_guard) {
      info.result = CUDA_ERROR_ILLEGAL_ADDRESS;
      why = kOutside;
    } else if (fault.signal == SIGILL) {
      info.result = CUDA_ERROR_ILLEGAL_INSTRUCTION;
    }
  }
  info.message = "kernel " + std::string(grid_->launch().name) + " failed in block " +
                 InBrackets(info.block) + ThreadOf(fault) + ": " + why;
  grid_->Fail(std::move(info));
}

// The thread that failed, for the sentence. Empty if it is not known: a kernel without barriers and
// warp operations runs the threads of a block as one loop, several of them at once, and some errors
// are those of a warp or of the block.
std::string BlockRunner::ThreadOf(const Fault& fault) const {
  const bool of_thread = fault.signal != 0 || fault.code > 0;
  if (grid_->kernel().kind() != kKernelCoroutine || !of_thread) return {};
  const uint32_t thread = scheduler_->running();
  const uint32_t* size = grid_->launch().block;
  const uint32_t at[3] = {thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]};
  return ", thread " + InBrackets(at);
}

}  // namespace rgpu::emu
