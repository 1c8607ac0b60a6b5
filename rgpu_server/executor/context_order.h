// Order between whole contexts. All functions are called with the executor's lock held.
#pragma once

#include <functional>
#include <memory>

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

// Makes `stream` wait for everything that was issued to `other` so far. The stream's context is
// current afterwards.
CUresult WaitForContext(Executor& executor, Stream& stream, Context& other);
// Makes later work of all streams of `context` wait for `point`. `legacy`: the legacy stream in
// which the point lies, whose earlier points it replaces; null if it lies in another stream.
// CUDA_ERROR_OUT_OF_MEMORY: there are too many points for which the context waits.
CUresult HoldBehind(Context& context, std::shared_ptr<Point> point, const Stream* legacy);
// Records an event behind everything that was issued to `context`, which is current.
CUresult RecordContext(Executor& executor, Context& context, unsigned int flags,
                       std::shared_ptr<Point>* point);

// Finds the context of an id, if it lives.
CUresult FindContext(Executor& executor, uint64_t id, std::shared_ptr<Context>* context);

// Makes a copy in `stream` wait for all work of its context and of the two others, and their later
// work wait for the copy.
CUresult Serially(Executor& executor, Stream& stream, Context& one, Context& two,
                  const std::function<CUresult()>& copy);

// Called when all work of `gone` is complete and its events are about to be destroyed: no other
// context waits for them any more.
void ReleaseHeld(Executor& executor, const Context& gone);

}  // namespace rgpu::exec
