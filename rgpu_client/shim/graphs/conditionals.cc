#include "rgpu_client/shim/graphs/conditionals.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace rgpu::shim {
namespace {

// The worker's graph for one graph of the program.
class WorkersGraph {
 public:
  WorkersGraph(const Here& here, uint64_t id)
      : session_(here.session), context_(here.context_id()), id_(id) {}
  ~WorkersGraph();
  WorkersGraph(const WorkersGraph&) = delete;
  WorkersGraph& operator=(const WorkersGraph&) = delete;

  void Made() { there_ = true; }
  // With its context, the worker has forgotten it already.
  void Destroy(const Here& here) {
    if (!there_.exchange(false)) return;
    const Context* context = here.session->handles().Find<Context>(context_);
    if (context == nullptr || !context->alive) return;
    here.channel().Post<op_rgpuGraphDestroy>({here.thread, context_}, {id_});
  }

 private:
  Session* const session_;
  const uint32_t context_;
  const uint64_t id_;
  std::atomic<bool> there_{false};  // the worker has it
};

// By the handle of the program's graph.
struct Known {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<WorkersGraph>> graphs;
};
Known* g_known = new Known;  // a pointer, because a forked child needs a new one

WorkersGraph::~WorkersGraph() {
  if (IsOpen(session_)) Destroy({session_, &ThisThread(), nullptr, nullptr});
  const std::lock_guard lock(g_known->mutex);
  const auto known = g_known->graphs.find(id_);
  // There is a new one if the program makes a handle of the same graph right now.
  if (known != g_known->graphs.end() && known->second.expired()) g_known->graphs.erase(known);
}

std::shared_ptr<WorkersGraph> FindOrMake(const Here& here, uint64_t root) {
  const std::lock_guard lock(g_known->mutex);
  std::weak_ptr<WorkersGraph>& known = g_known->graphs[root];
  std::shared_ptr<WorkersGraph> found = known.lock();
  if (found == nullptr) {
    found = std::make_shared<WorkersGraph>(here, root);
    known = found;
  }
  return found;
}

}  // namespace

CUresult MakeConditional(const Here& here, uint64_t root, graph::ConditionalHandle* handle) {
  const std::shared_ptr<WorkersGraph> graph = FindOrMake(here, root);
  rgpuGraphConditional_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuGraphConditional>(
      here.issuer(), {root, handle->initial, handle->assigns ? 1U : 0U}, &reply);
  if (status != CUDA_SUCCESS) return status;
  graph->Made();
  handle->value = reply.handle;
  handle->keep = graph;
  return CUDA_SUCCESS;
}

void ConditionalsTaken(const Here& here, uint64_t root) {
  std::shared_ptr<WorkersGraph> graph;
  {
    const std::lock_guard lock(g_known->mutex);
    const auto known = g_known->graphs.find(root);
    if (known != g_known->graphs.end()) graph = known->second.lock();
  }
  if (graph != nullptr) graph->Destroy(here);
}

void ForgetConditionals() { g_known = new Known; }

}  // namespace rgpu::shim
