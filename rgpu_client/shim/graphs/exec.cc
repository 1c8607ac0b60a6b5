#include "rgpu_client/shim/graphs/exec.h"

#include <algorithm>

#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/functions.h"
#include "rgpu_client/shim/calls/images.h"
#include "rgpu_client/shim/graphs/conditionals.h"
#include "rgpu_client/shim/graphs/definition.h"
#include "rgpu_client/shim/graphs/home.h"
#include "rgpu_client/shim/pump.h"

namespace rgpu::shim {
namespace {

bool WaitsForValue(const graph::Node& node) {
  const auto* batch = std::get_if<graph::BatchParams>(&node.params);
  const auto waits = [](const CUstreamBatchMemOpParams& one) {
    return one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  };
  return batch != nullptr && std::ranges::any_of(batch->operations, waits);
}

// The worker's graph for which its driver made the conditional handles of this one; 0: there are
// none.
uint64_t ShellOf(const graph::Instance& instance) {
  const auto conditional = [](const graph::Instance::Entry& entry) {
    return entry.node->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  };
  return std::ranges::any_of(instance.nodes, conditional) ? instance.graph->original : 0;
}

}  // namespace

// Locks the events that a launch records, so that their records are sent in the order of their
// versions. An event that several nodes record is recorded several times.
class RemoteExec::Records {
 public:
  explicit Records(std::vector<Event*> events) : events_(std::move(events)) {
    std::vector<Event*> once = events_;
    std::ranges::sort(once);
    once.erase(std::unique(once.begin(), once.end()), once.end());
    for (Event* event : once) locks_.emplace_back(event->record_mutex);
  }
  void Posted(uint64_t seq) {
    for (Event* event : events_) {
      event->record_seq.store(seq);
      // Its record says nothing about a whole stream up to `seq`.
      event->record_stream.store(0);
      event->progress.version.fetch_add(1);
    }
  }

 private:
  const std::vector<Event*> events_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

CUresult MakeExec(graph::Instance instance, std::shared_ptr<graph::Exec>* exec) {
  Here here;
  if (const CUresult status = HomeOf(instance, &here); status != CUDA_SUCCESS) return status;
  auto made = std::make_shared<RemoteExec>(here.session, std::move(instance));
  const CUresult status = made->Instantiate(here);
  if (status == CUDA_SUCCESS) *exec = std::move(made);
  return status;
}

RemoteExec::RemoteExec(Session* session, graph::Instance made) : session_(session) {
  instance = std::move(made);
}

RemoteExec::~RemoteExec() {
  if (!made_ || !IsOpen(session_)) return;
  const Here here{session_, &ThisThread(), nullptr, nullptr};
  here.channel().Post<op_rgpuGraphExecDestroy>({here.thread, context_}, {id_});
}

// The surroundings of a call about this graph, whatever context is current.
CUresult RemoteExec::Home(Here* here) const {
  if (!IsOpen(session_)) return CUDA_ERROR_INVALID_HANDLE;
  *here = {session_, &ThisThread(), nullptr, nullptr};
  here->context = here->session->handles().Find<Context>(context_);
  return here->context != nullptr && here->context->alive ? CUDA_SUCCESS
                                                          : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult RemoteExec::PutDefinition(const Here& here, uint64_t* image) const {
  ChangedParams changed;
  wire::GraphDefinition definition;
  CUresult status = Define(here, instance, &changed, &definition);
  if (status != CUDA_SUCCESS) return status;
  std::vector<uint8_t> bytes;
  wire::Encode(definition, &bytes);
  if (bytes.size() > wire::kMaxDefinitionBytes) return CUDA_ERROR_NOT_SUPPORTED;
  return PutImage(here, {bytes.data(), bytes.size()}, image);
}

CUresult RemoteExec::Instantiate(const Here& here) {
  context_ = here.context_id();
  id_ = here.session->handles().NewId();
  uint64_t image = 0;
  CUresult status = PutDefinition(here, &image);
  if (status != CUDA_SUCCESS) return status;
  const uint64_t shell = ShellOf(instance);
  rgpuGraphInstantiate_Reply reply;
  status = here.channel().Call<op_rgpuGraphInstantiate>(
      here.issuer(), {id_, image, shell, instance.flags}, &reply);
  if (status != CUDA_SUCCESS) return status;
  // The executable graph has taken the worker's graph.
  if (shell != 0) ConditionalsTaken(here, shell);
  made_ = true;
  Remember(here);
  return CUDA_SUCCESS;
}

// Takes note of what the worker has now.
void RemoteExec::Remember(const Here& here) {
  sides_ = SidesOf(here, instance);
  sent_.clear();
  recorded_.clear();
  waits_for_values_ = false;
  for (uint32_t number = 0; number < instance.nodes.size(); ++number) {
    const graph::Node& node = *instance.nodes[number].node;
    sent_.push_back(StateOf(number));
    waits_for_values_ = waits_for_values_ || WaitsForValue(node);
    const auto* record = std::get_if<graph::RecordParams>(&node.params);
    if (record != nullptr) recorded_.push_back(HandleValue(record->event));
  }
}

RemoteExec::Sent RemoteExec::StateOf(uint32_t number) const {
  Sent state;
  state.enabled = instance.nodes[number].enabled;
  const auto* kernel = std::get_if<graph::KernelParams>(&instance.nodes[number].node->params);
  if (kernel != nullptr) {
    state.function =
        kernel->function != nullptr ? HandleValue(kernel->function) : HandleValue(kernel->kernel);
  }
  return state;
}

CUresult RemoteExec::NodeChanged(uint32_t number) {
  Here here;
  if (const CUresult status = Home(&here); status != CUDA_SUCCESS) return status;
  CUresult status = CUDA_SUCCESS;
  const bool enabled = instance.nodes[number].enabled;
  // Neither a switch nor a kernel changes what is known of the whole graph.
  const bool alone = enabled != sent_[number].enabled || sent_[number].function != 0;
  if (enabled != sent_[number].enabled) {
    status = here.channel().Post<op_rgpuGraphEnableNode>(here.issuer(), {id_, number, enabled});
  } else {
    status = SendNode(here, number);
  }
  if (status != CUDA_SUCCESS) return status;
  if (alone) {
    sent_[number] = StateOf(number);
  } else {
    Remember(here);
  }
  return CUDA_SUCCESS;
}

CUresult RemoteExec::SendNode(const Here& here, uint32_t number) {
  const graph::Node& changed = *instance.nodes[number].node;
  if (!graph::InsideOf(changed).empty()) return Updated(0);
  ChangedParams params;
  wire::GraphNode node;
  CUresult status = DefineNode(here, instance, number, &params, &node);
  if (status != CUDA_SUCCESS) return status;
  // Its function is in this process.
  if (std::holds_alternative<wire::GraphHostFunction>(node.parameters)) return CUDA_SUCCESS;
  std::vector<uint8_t> bytes;
  wire::EncodeNode(node, &bytes);
  const wire::ByteView view = wire::Bytes(bytes.data(), bytes.size());
  const Sent before = sent_[number];
  const bool same_kernel = before.function != 0 && before.function == StateOf(number).function &&
                           changed.graph == instance.graph.get();
  if (same_kernel) {
    return here.channel().Post<op_rgpuGraphSetNodeLater>(here.issuer(), {id_, number, view});
  }
  rgpuGraphSetNode_Reply reply;
  status = here.channel().Call<op_rgpuGraphSetNode>(here.issuer(), {id_, number, view}, &reply);
  return status == CUDA_ERROR_NOT_SUPPORTED ? Updated(0) : status;
}

CUresult RemoteExec::SendUpdate(const Here& here, uint64_t image, uint64_t handles_of) const {
  if (handles_of == 0) {
    rgpuGraphUpdate_Reply reply;
    return here.channel().Call<op_rgpuGraphUpdate>(here.issuer(), {id_, image}, &reply);
  }
  rgpuGraphUpdateWith_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuGraphUpdateWith>(here.issuer(), {id_, image, handles_of}, &reply);
  if (status == CUDA_SUCCESS) ConditionalsTaken(here, handles_of);
  return status;
}

CUresult RemoteExec::Updated(uint64_t handles_of) {
  Here here;
  if (const CUresult status = Home(&here); status != CUDA_SUCCESS) return status;
  uint64_t image = 0;
  CUresult status = PutDefinition(here, &image);
  if (status != CUDA_SUCCESS) return status;
  status = SendUpdate(here, image, handles_of);
  if (status == CUDA_SUCCESS) Remember(here);
  return status;
}

CUresult RemoteExec::Upload(CUstream stream) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  return here.channel().Post<op_rgpuGraphUpload>(here.issuer(), {id_, here.stream->wire},
                                                 Work(here));
}

std::vector<Event*> RemoteExec::RecordedEvents(const Here& here) const {
  std::vector<Event*> events;
  for (const uint64_t id : recorded_) {
    Event* event = here.session->handles().Find<Event>(id);
    if (event != nullptr) events.push_back(event);
  }
  return events;
}

CUresult RemoteExec::Launch(CUstream stream) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  if (here.session != session_) return CUDA_ERROR_INVALID_HANDLE;
  PostOptions options = CountedWork(here, 0);
  uint64_t seq = 0;
  options.seq = &seq;
  const bool asks = !sides_->empty();
  const rgpuGraphLaunch_Request request{id_, here.stream->wire, static_cast<uint8_t>(asks)};
  Records records(RecordedEvents(here));
  const CUresult status =
      asks ? here.channel().PostGraph<op_rgpuGraphLaunch>(here.issuer(), request, options, sides_)
           : here.channel().Post<op_rgpuGraphLaunch>(here.issuer(), request, options);
  if (status != CUDA_SUCCESS) return status;
  records.Posted(seq);
  // The program may still change pinned memory that a later copy reads.
  if (asks || waits_for_values_) StartHostOrder(here, seq);
  if (asks) Pump::Need(&here.channel());
  return EndOfLaunch(here);
}

}  // namespace rgpu::shim
