// An event of several processes (CU_EVENT_INTERPROCESS): a page that all of them map. The page has
// the number of the latest record, and which of the last records are complete. Another process may
// write anything there: then its own lease's events are wrong, and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "gen/cuda_abi.gen.h"
#include "rgpu_common/native/base/emulated_ipc.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::emu {

class Context;

class SharedEvent {
 public:
  // A record of the event: its number, and the process that made it. 0: there is none.
  struct Record {
    uint64_t number = 0;
    int process = 0;
  };

  // Null: the system refuses it, or the handle names no event.
  static std::shared_ptr<SharedEvent> Make();
  static std::shared_ptr<SharedEvent> Open(const rgpu::base::EmulatedIpc& ipc);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // The handle for other processes. False: this process has not made the event.
  bool Export(rgpu::base::EmulatedIpc* ipc) const;

  // Begins a record. CUDA_ERROR_OUT_OF_MEMORY: too many records are not complete.
  CUresult Begin(Record* record);
  // Ends it: the stream has come to its place.
  void Complete(const Record& record);

  Record Latest() const;
  // A record of a process that has ended counts as complete.
  bool IsComplete(const Record& record) const;
  // Blocks until the record is complete, or nothing of the context runs any more.
  void Wait(const Record& record, const Context& context) const;

 private:
  struct Page;
  SharedEvent(Page* page, rgpu::base::UniqueFd file) : page_(page), file_(std::move(file)) {}
  static std::shared_ptr<SharedEvent> Map(rgpu::base::UniqueFd file, bool keep);

  Page* const page_;
  const rgpu::base::UniqueFd file_;  // invalid in a process that has opened the event
};

}  // namespace rgpu::emu
