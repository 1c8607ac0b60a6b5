// Events that processes of one lease share (CU_EVENT_INTERPROCESS). Behind such an event stays one
// driver event, whose records other processes see.
#pragma once

#include <memory>

#include "rgpu_server/executor/exports.h"
#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

struct SharedEvent {
  CUevent handle = nullptr;
  std::shared_ptr<Context> context;
  // Null, or a stream of ours that waits for the event. A point in it completes with the record
  // that was the latest when the point was set.
  std::shared_ptr<Stream> observer;
  Frontier frontier;                 // of this session's records
  std::shared_ptr<Export> exported;  // null: not exported
  bool imported = false;
};

// All of these: with the executor's lock held, and with the context of the event or stream current.
CUresult RecordShared(Executor& executor, SharedEvent& event, Stream& stream);
CUresult WaitForShared(Executor& executor, const SharedEvent& event, Stream& stream);
CUresult QueryShared(Executor& executor, SharedEvent& event);
// Sets a point that completes with the event's latest record. Null: it is complete.
CUresult ObserveShared(Executor& executor, SharedEvent& event, std::shared_ptr<Point>* point);
// Destroys the driver's event.
void DropShared(Executor& executor, const std::shared_ptr<SharedEvent>& event);

}  // namespace rgpu::exec
