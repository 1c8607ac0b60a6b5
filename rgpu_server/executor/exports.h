// What this session exports to other sessions of its lease (memory, events), and what it has opened
// of theirs.
//
// A client gets a token: the exporter's session, the number of the export, and a secret. A worker
// that opens it asks the daemon, which asks the exporter's worker and passes on its answer: the
// driver's own handle and, for the emulated device, a descriptor. No client sees either.
//
// The exporter is charged for its memory until it has freed it and every other session has closed
// it. What happens when it ends before that is the daemon's part (rgpu_server/core/exports.py).
//
// Unless said otherwise, functions are called with the executor's lock held.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "gen/worker.gen.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::exec {

struct Context;
class Executor;

using IpcHandle = std::array<uint8_t, wire::worker::kMaxIpcHandleBytes>;
using wire::worker::Shared;

struct Export {
  uint64_t number = 0;
  Shared shared = Shared::kMemory;
  decltype(wire::worker::ExportWanted::secret) secret{};
  IpcHandle handle{};
  uint32_t context = 0;
  uint64_t base = 0;     // of memory
  uint64_t size = 0;     // of memory
  uint64_t charged = 0;  // of memory, for whoever has it when this session has ended
  uint32_t open = 0;     // sessions that have it open
  base::UniqueFd file;   // the driver's descriptor of memory of cuMemCreate
  bool gone = false;     // the client has freed it; nobody else gets it
  uint64_t kept = 0;     // charged although the driver has freed it
};

// Memory of another session that this session has open. Events are not counted.
struct Import {
  uint64_t exporter = 0;
  uint64_t number = 0;
  bool operator<(const Import& other) const {
    return std::pair(exporter, number) < std::pair(other.exporter, other.number);
  }
};

class Exports {
 public:
  explicit Exports(Executor& executor) : executor_(executor) {}
  // Without a daemon nothing can be opened.
  void ConnectDaemon(int socket, uint64_t session) {
    daemon_ = socket;
    session_ = session;
  }

  // Null: there are too many.
  std::shared_ptr<Export> Add(Export made);
  std::shared_ptr<Export> FindMemory(uint64_t base) const;
  std::string Token(const Export& exported) const;
  // Nobody else gets the export any more.
  void Retire(const std::shared_ptr<Export>& exported);
  // The driver has freed it: releases `bytes`, or keeps the charge until no session has it open.
  void Freed(const std::shared_ptr<Export>& exported, uint64_t bytes);
  // The bytes that stay charged although their memory was freed.
  uint64_t kept() const { return kept_; }

  // What an export or an import of a context leaves behind when the context goes.
  struct Left {
    uint64_t kept_bytes = 0;  // not to be released
    std::vector<Import> imports;
  };
  Left TakeContext(uint32_t context);

  // What the answer to OPEN_EXPORT brings.
  struct Opened {
    Import import;
    IpcHandle handle{};
    base::UniqueFd file;
    uint64_t size = 0;
  };
  // Asks the exporter for what the token names. Waits without the lock. Memory is then in the table
  // of imports, for `context`.
  CUresult Open(wire::ByteView token, Shared shared, uint32_t context, Opened* opened);
  // Gives an import back.
  void Close(const Import& import);

  // While memory is moved to a file of its own, no bytes are received in place: the system would
  // refuse to write them (emulated device; in_place.h).
  class Moving {
   public:
    explicit Moving(Executor& executor);
    ~Moving();
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    Executor& executor_;
  };
  bool moving() const { return moving_ != 0; }
  void BeginArrival() { ++arriving_; }
  void EndArrival();  // called without the lock

  // Messages of the daemon. Called without the lock.
  void OnWanted(const wire::worker::ExportWanted& wanted);
  void OnReleased(uint64_t number);
  void OnOpened(const wire::worker::ExportOpened& answer, base::UniqueFd file);

 private:
  struct Asked {
    Import import;
    Shared shared = Shared::kMemory;
    bool answered = false;
    bool given_up = false;
    CUresult status = CUDA_ERROR_UNKNOWN;
    Opened opened;
  };

  CUresult Ask(const Import& import, Shared shared, wire::ByteView secret, Asked* answer);
  wire::worker::ExportGiven Give(const wire::worker::ExportWanted& wanted);

  Executor& executor_;
  int daemon_ = -1;
  uint64_t session_ = 0;
  uint64_t last_number_ = 0;
  uint64_t kept_ = 0;
  std::map<uint64_t, std::shared_ptr<Export>> exports_;  // by number
  std::unordered_map<uint64_t, uint64_t> by_base_;       // base -> number
  std::map<Import, uint32_t> imports_;                   // context by import
  uint32_t moving_ = 0;
  uint32_t arriving_ = 0;

  std::mutex asked_mutex_;
  std::condition_variable answered_;
  uint64_t last_request_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Asked>> asked_;
};

// The synchronous copies that the client has issued were complete when their calls returned, as far
// as it knows. So they are, before another process hears of memory. `own`: any context.
CUresult AwaitCopies(Executor& executor, const Context& own);

}  // namespace rgpu::exec
