#include "rgpu_emu/device/shared_event.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <utility>

#include "rgpu_emu/device/context.h"
#include "rgpu_emu/device/shared_file.h"

namespace rgpu::emu {
namespace {

constexpr uint64_t kPageSize = 4096;
constexpr size_t kRecords = 480;  // that may be incomplete at the same time
constexpr unsigned kProcessBits = 22;
// How often a waiting thread looks whether the recording process lives and the context goes on.
constexpr timespec kLook = {0, 20'000'000};

// number << 23 | complete << 22 | process. Both words of a record have this form, so that one load
// tells a record from a later one in the same place.
constexpr uint64_t kComplete = uint64_t{1} << kProcessBits;

uint64_t Pack(const SharedEvent::Record& record, bool complete) {
  return record.number << (kProcessBits + 1) | (complete ? kComplete : 0) |
         static_cast<uint64_t>(record.process);
}

SharedEvent::Record Unpack(uint64_t word) {
  return {word >> (kProcessBits + 1), static_cast<int>(word & (kComplete - 1))};
}

}  // namespace

struct SharedEvent::Page {
  std::atomic<uint64_t> latest;
  std::atomic<uint32_t> changes;  // a futex: counts completions
  uint32_t reserved;
  std::atomic<uint64_t> records[kRecords];  // by number
};

std::shared_ptr<SharedEvent> SharedEvent::Map(rgpu::base::UniqueFd file, bool keep) {
  static_assert(sizeof(Page) <= kPageSize && std::atomic<uint64_t>::is_always_lock_free);
  if (!file.valid()) return nullptr;
  void* at = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  if (!keep) file.reset();
  return std::shared_ptr<SharedEvent>(new SharedEvent(static_cast<Page*>(at), std::move(file)));
}

std::shared_ptr<SharedEvent> SharedEvent::Make() {
  return Map(MakeSharedFile("rgpu-emu-event", kPageSize), true);
}

std::shared_ptr<SharedEvent> SharedEvent::Open(const rgpu::base::EmulatedIpc& ipc) {
  const bool known = ipc.kind == rgpu::base::EmulatedIpc::kEvent && ipc.file_bytes == kPageSize;
  return known ? Map(OpenSharedFile(ipc), false) : nullptr;
}

SharedEvent::~SharedEvent() { munmap(page_, kPageSize); }

bool SharedEvent::Export(rgpu::base::EmulatedIpc* ipc) const {
  if (!file_.valid()) return false;
  ipc->kind = rgpu::base::EmulatedIpc::kEvent;
  ipc->process = getpid();
  ipc->fd = file_.get();
  ipc->file_bytes = kPageSize;
  return true;
}

CUresult SharedEvent::Begin(Record* record) {
  uint64_t before = page_->latest.load();
  do {
    *record = {Unpack(before).number + 1, static_cast<int>(getpid())};
    const Record oldest = Unpack(page_->records[record->number % kRecords].load());
    if (oldest.number != 0 && !IsComplete(oldest)) return CUDA_ERROR_OUT_OF_MEMORY;
  } while (!page_->latest.compare_exchange_weak(before, Pack(*record, false)));
  page_->records[record->number % kRecords].store(Pack(*record, false));
  return CUDA_SUCCESS;
}

void SharedEvent::Complete(const Record& record) {
  // Nobody has used the place for another record, because this one was not complete.
  page_->records[record.number % kRecords].store(Pack(record, true));
  page_->changes.fetch_add(1);
  syscall(SYS_futex, &page_->changes, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

SharedEvent::Record SharedEvent::Latest() const { return Unpack(page_->latest.load()); }

bool SharedEvent::IsComplete(const Record& record) const {
  if (record.number == 0) return true;
  const uint64_t word = page_->records[record.number % kRecords].load();
  const uint64_t number = Unpack(word).number;
  if (number > record.number || (number == record.number && (word & kComplete) != 0)) return true;
  return record.process != getpid() && !ProcessLives(record.process);
}

void SharedEvent::Wait(const Record& record, const Context& context) const {
  for (;;) {
    const uint32_t seen = page_->changes.load();
    if (IsComplete(record) || context.cancelled() || context.Status() != CUDA_SUCCESS) return;
    syscall(SYS_futex, &page_->changes, FUTEX_WAIT, seen, &kLook, nullptr, 0);
  }
}

}  // namespace rgpu::emu
