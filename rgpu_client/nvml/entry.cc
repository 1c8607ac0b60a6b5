#include "rgpu_client/nvml/entry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>

#include "gen/nvml_calls.gen.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_common/native/base/release.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::nvml {
namespace {

constexpr int kExitMs = 100;

struct Library {
  std::mutex mutex;
  unsigned uses = 0;  // calls of nvmlInit without their nvmlShutdown
  std::shared_ptr<Table> table;
  std::string said;  // the last sentence on stderr
};

// A pointer, because a forked child needs a new one: a thread that exists only in the parent may
// hold the old mutex.
Library* g_library = new Library;

void ForkedChild() {
  auto* library = new Library;
  library->uses = g_library->uses;
  g_library = library;
}

void OnExit() { transport::Retire(kExitMs); }

__attribute__((constructor)) void Load() {
  base::SetLogName("nvml");
  base::SetLogLevelFromEnvironment();
  pthread_atfork(nullptr, nullptr, &ForkedChild);
}

// Prints why there is no device. A tool may try again and again, so each sentence comes once.
void Say(Library& library, const std::string& sentence) {
  if (sentence.empty() || sentence == library.said) return;
  library.said = sentence;
  base::Log(base::Level::kError, "%s", sentence.c_str());
}

nvmlReturn_t MakeTable(Library& library) {
  const shim::Settings settings = shim::ReadSettings();
  if (!settings.error.empty()) {
    Say(library, settings.error);
    return NVML_ERROR_UNKNOWN;
  }
  if (settings.server.empty() && settings.uses_server()) {
    Say(library,
        "no server is configured, so there is no device: set RGPU_SERVER=HOST:PORT or start the "
        "program with 'rgpu run --server HOST:PORT -- PROGRAM'");
    return NVML_ERROR_DRIVER_NOT_LOADED;
  }
  library.table = std::make_shared<Table>(settings);
  return NVML_SUCCESS;
}

// In a forked child the table is made again with the first call.
nvmlReturn_t HaveTable(Library& library) {
  return library.table == nullptr ? MakeTable(library) : NVML_SUCCESS;
}

}  // namespace

Entry::Entry() {
  Library& library = *g_library;
  const std::lock_guard lock(library.mutex);
  if (library.uses == 0) {
    status_ = NVML_ERROR_UNINITIALIZED;
    return;
  }
  status_ = HaveTable(library);
  table_ = library.table;
}

View Entry::Look(nvmlDevice_t handle, Age age) const {
  const int place = PlaceOf(handle);
  if (place >= 0 && static_cast<size_t>(place) < table_->size()) {
    return table_->at(static_cast<size_t>(place)).Look(age);
  }
  View none;
  none.status = NVML_ERROR_INVALID_ARGUMENT;
  return none;
}

nvmlReturn_t Begin(bool must_answer) {
  static const bool registered = atexit(&OnExit) == 0;
  static_cast<void>(registered);
  Library& library = *g_library;
  std::unique_lock lock(library.mutex);
  nvmlReturn_t status = HaveTable(library);
  if (status == NVML_SUCCESS && must_answer && library.uses == 0) {
    // Without the lock, because other threads must not wait for a silent server.
    const std::shared_ptr<Table> table = library.table;
    lock.unlock();
    status = table->First(kNow).status;
    lock.lock();
    if (status != NVML_SUCCESS) Say(library, table->at(0).sentence());
    if (status != NVML_SUCCESS && library.uses == 0) library.table.reset();
    if (status == NVML_ERROR_GPU_IS_LOST) status = NVML_ERROR_DRIVER_NOT_LOADED;
    if (status == NVML_SUCCESS && library.table == nullptr) library.table = table;
  }
  if (status == NVML_SUCCESS) ++library.uses;
  return status;
}

void End() {
  Library& library = *g_library;
  const std::lock_guard lock(library.mutex);
  if (library.uses > 0 && --library.uses == 0) library.table.reset();
}

void SayOnce(const std::string& sentence) {
  Library& library = *g_library;
  const std::lock_guard lock(library.mutex);
  Say(library, sentence);
}

nvmlReturn_t Refuse(nvmlReturn_t error) {
  Library& library = *g_library;
  const std::lock_guard lock(library.mutex);
  return library.uses == 0 ? NVML_ERROR_UNINITIALIZED : error;
}

nvmlReturn_t CopyText(const std::string& text, char* to, unsigned length) {
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(to, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

nvmlReturn_t Read(const View& of, wire::ReadingKey key, unsigned long long* value) {
  for (const wire::Reading& reading : of.facts().readings) {
    if (reading.key != static_cast<uint16_t>(key)) continue;
    *value = reading.value;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t Read(const View& of, wire::ReadingKey key, unsigned* value) {
  unsigned long long wide = 0;
  const nvmlReturn_t status = Read(of, key, &wide);
  if (status == NVML_SUCCESS) *value = static_cast<unsigned>(wide);
  return status;
}

}  // namespace rgpu::nvml

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) {
  const char* text = rgpu::nvml::ErrorText(result);
  return text == nullptr ? "unknown error" : text;
}

// NVIDIA's nvidia-smi asks for private tables of NVIDIA's library, and ends without them. They are
// no public interface, so there are none here; the sentence says what to use.
extern "C" __attribute__((visibility("default"))) nvmlReturn_t nvmlInternalGetExportTable() {
  rgpu::nvml::SayOnce(
      "this program needs private tables of NVIDIA's libnvidia-ml.so.1, which rgpu does not have: "
      "use `rgpu smi`, nvitop or gpustat");
  return NVML_ERROR_NOT_SUPPORTED;
}

// A server refuses a management library that exports this symbol: it would ask itself.
extern "C" __attribute__((visibility("default"))) const char* rgpu_shim_version() {
  return rgpu::base::Release();
}
