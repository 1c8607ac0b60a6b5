#include "rgpu_server/executor/exports.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "rgpu_common/native/base/emulated_ipc.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_server/executor/daemon_channel.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// Each is a descriptor of an emulated device.
constexpr size_t kMostExports = 512;
constexpr size_t kMostImports = 512;
// How long an exporter's worker may take to answer. It needs milliseconds.
constexpr std::chrono::seconds kAnswerTime{10};

// A token: exporter u64, number u64, the secret, zeros.
constexpr size_t kSecretAt = 2 * sizeof(uint64_t);
constexpr size_t kTokenBytes = sizeof(CUipcMemHandle);
constexpr size_t kSecretBytes = std::tuple_size_v<decltype(Export::secret)>;
static_assert(kSecretAt + kSecretBytes <= kTokenBytes);

bool ReadToken(wire::ByteView token, Import* import) {
  if (token.size != kTokenBytes) return false;
  std::memcpy(&import->exporter, token.data, sizeof import->exporter);
  std::memcpy(&import->number, token.data + sizeof import->exporter, sizeof import->number);
  const uint8_t* rest = token.data + kSecretAt + kSecretBytes;
  return std::all_of(rest, token.data + kTokenBytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

std::shared_ptr<Export> Exports::Add(Export made) {
  if (exports_.size() >= kMostExports) return nullptr;
  if (getrandom(made.secret.data(), made.secret.size(), 0) !=
      static_cast<ssize_t>(made.secret.size())) {
    return nullptr;
  }
  made.number = ++last_number_;
  auto exported = std::make_shared<Export>(std::move(made));
  exports_[exported->number] = exported;
  if (exported->shared == Shared::kMemory) by_base_[exported->base] = exported->number;
  return exported;
}

std::shared_ptr<Export> Exports::FindMemory(uint64_t base) const {
  const auto found = by_base_.find(base);
  return found == by_base_.end() ? nullptr : exports_.at(found->second);
}

std::string Exports::Token(const Export& exported) const {
  std::string token(kTokenBytes, '\0');
  std::memcpy(token.data(), &session_, sizeof session_);
  std::memcpy(token.data() + sizeof session_, &exported.number, sizeof exported.number);
  std::memcpy(token.data() + kSecretAt, exported.secret.data(), kSecretBytes);
  return token;
}

void Exports::Retire(const std::shared_ptr<Export>& exported) {
  if (exported->gone) return;
  exported->gone = true;
  if (exported->shared == Shared::kMemory) by_base_.erase(exported->base);
  // Nothing of an event is charged, so nobody is told when its last session closes it.
  if (exported->shared == Shared::kEvent) exports_.erase(exported->number);
}

void Exports::Freed(const std::shared_ptr<Export>& exported, uint64_t bytes) {
  if (exported->open != 0) {
    exported->kept = bytes;
    kept_ += bytes;
    return;
  }
  exports_.erase(exported->number);
  executor_.ledger().Release(bytes);
}

Exports::Left Exports::TakeContext(uint32_t context) {
  Left left;
  for (const auto& [number, exported] : std::map(exports_)) {
    const bool own = exported->context == context && exported->shared != Shared::kMappable;
    if (!own || exported->gone) continue;
    Retire(exported);
    if (exported->shared == Shared::kEvent) continue;
    if (exported->open == 0) {
      exports_.erase(number);
      continue;
    }
    exported->kept = exported->charged;
    kept_ += exported->kept;
    left.kept_bytes += exported->kept;
  }
  for (const auto& [import, owner] : imports_) {
    if (owner == context) left.imports.push_back(import);
  }
  return left;
}

CUresult Exports::Open(wire::ByteView token, Shared shared, uint32_t context, Opened* opened) {
  Import import;
  if (!ReadToken(token, &import)) return CUDA_ERROR_INVALID_HANDLE;
  if (daemon_ < 0) return CUDA_ERROR_NOT_SUPPORTED;
  // As natively: a process does not open its own export, and one context opens memory of others.
  if (import.exporter == session_ || imports_.contains(import)) return CUDA_ERROR_INVALID_CONTEXT;
  const bool memory = shared != Shared::kEvent;
  if (memory && imports_.size() >= kMostImports) return CUDA_ERROR_OUT_OF_MEMORY;
  if (memory) imports_[import] = context;
  Asked answer;
  const wire::ByteView secret{token.data + kSecretAt, kSecretBytes};
  const CUresult result = Ask(import, shared, secret, &answer);
  if (result != CUDA_SUCCESS) {
    if (memory) imports_.erase(import);
    return result;
  }
  *opened = std::move(answer.opened);
  opened->import = import;
  return CUDA_SUCCESS;
}

CUresult Exports::Ask(const Import& import, Shared shared, wire::ByteView secret, Asked* answer) {
  const auto asked = std::make_shared<Asked>();
  asked->import = import;
  asked->shared = shared;
  wire::worker::OpenExport question;
  question.exporter = import.exporter;
  question.number = import.number;
  question.shared = shared;
  std::memcpy(question.secret.data(), secret.data, kSecretBytes);
  executor_.role().Yield();
  return executor_.Unlocked([&] {
    std::unique_lock lock(asked_mutex_);
    question.request = ++last_request_;
    asked_[question.request] = asked;
    if (!SayToDaemon(daemon_, question)) {
      asked_.erase(question.request);
      return CUDA_ERROR_MAP_FAILED;
    }
    if (!answered_.wait_for(lock, kAnswerTime, [&] { return asked->answered; })) {
      asked->given_up = true;
      return CUDA_ERROR_MAP_FAILED;
    }
    answer->opened = std::move(asked->opened);
    return asked->status;
  });
}

void Exports::Close(const Import& import) {
  if (imports_.erase(import) == 0) return;
  SayToDaemon(daemon_, wire::worker::ExportClosed{import.exporter, import.number});
}

void Exports::OnOpened(const wire::worker::ExportOpened& answer, base::UniqueFd file) {
  const std::lock_guard lock(asked_mutex_);
  const auto found = asked_.find(answer.request);
  if (found == asked_.end()) return;
  const std::shared_ptr<Asked> asked = found->second;
  asked_.erase(found);
  asked->status = static_cast<CUresult>(answer.status);
  if (asked->status == CUDA_SUCCESS && answer.handle.size() != sizeof(IpcHandle)) {
    asked->status = CUDA_ERROR_INVALID_HANDLE;
  }
  const bool useless = asked->given_up || asked->status != CUDA_SUCCESS;
  if (useless && answer.status == CUDA_SUCCESS && asked->shared != Shared::kEvent) {
    SayToDaemon(daemon_, wire::worker::ExportClosed{asked->import.exporter, asked->import.number});
  }
  if (!useless) {
    std::copy(answer.handle.begin(), answer.handle.end(), asked->opened.handle.begin());
    asked->opened.file = std::move(file);
    asked->opened.size = answer.size;
  }
  asked->answered = true;
  answered_.notify_all();
}

Exports::Moving::Moving(Executor& executor) : executor_(executor) {
  Exports& exports = executor.exports();
  ++exports.moving_;
  if (exports.arriving_ == 0) return;
  executor.role().Yield();
  std::unique_lock lock(executor.mutex(), std::adopt_lock);
  executor.changed().wait(lock, [&] { return exports.arriving_ == 0; });
  lock.release();
}

Exports::Moving::~Moving() { --executor_.exports().moving_; }

void Exports::EndArrival() {
  const std::lock_guard lock(executor_.mutex());
  if (--arriving_ == 0 && moving()) executor_.changed().notify_all();
}

wire::worker::ExportGiven Exports::Give(const wire::worker::ExportWanted& wanted) {
  wire::worker::ExportGiven given;
  given.ticket = wanted.ticket;
  const auto found = exports_.find(wanted.number);
  const bool known = found != exports_.end() && !found->second->gone &&
                     found->second->shared == wanted.shared &&
                     wire::SameSecret(found->second->secret, wanted.secret);
  given.status = known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (!known) return given;
  Export& exported = *found->second;
  given.size = exported.size;
  given.charged = exported.charged;
  given.handle.assign(exported.handle.begin(), exported.handle.end());
  if (exported.shared != Shared::kEvent) ++exported.open;
  return given;
}

void Exports::OnWanted(const wire::worker::ExportWanted& wanted) {
  const std::lock_guard lock(executor_.mutex());
  const wire::worker::ExportGiven given = Give(wanted);
  std::vector<int> fds;
  // The descriptor is the device's own; with the lock held it cannot be closed meanwhile, because
  // the export is retired before the driver frees the memory.
  if (given.status == CUDA_SUCCESS && wanted.shared == Shared::kMappable) {
    fds.push_back(exports_.at(wanted.number)->file.get());
  } else if (given.status == CUDA_SUCCESS && executor_.driver().emulated) {
    fds.push_back(base::ReadIpc(given.handle.data()).fd);
  }
  SayToDaemon(daemon_, given, fds);
}

void Exports::OnReleased(uint64_t number) {
  const std::lock_guard lock(executor_.mutex());
  const auto found = exports_.find(number);
  if (found == exports_.end() || found->second->open == 0) return;
  const std::shared_ptr<Export> exported = found->second;
  if (--exported->open != 0 || exported->kept == 0) return;
  kept_ -= exported->kept;
  executor_.ledger().Release(exported->kept);
  exports_.erase(found);
}

}  // namespace rgpu::exec
