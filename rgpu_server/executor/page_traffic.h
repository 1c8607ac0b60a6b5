// The commands by which a client reads and writes pages of memory that its program uses in place
// (rgpuPageStreamCreate, ADR 0019).
#pragma once

#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

// True if the command moves at most a piece in a page stream, waits for one, or creates one. Such
// commands pass the gate and the commands that are held: a host function of the program may need
// the page, and the held work may wait for that function. Their time is charged like that of work
// which the worker does itself (Gate::Spent).
bool IsPageTraffic(Executor& executor, const OpcodeInfo& info, const Command& command);

// The estimate by which the gate counts a copy in the stream as work of the device; null in a page
// stream. There the predicted time is charged at once.
const std::shared_ptr<Estimate>* CountedCopy(Executor& executor, const Stream& stream,
                                             const std::shared_ptr<Estimate>& kind, uint64_t bytes);

}  // namespace rgpu::exec
