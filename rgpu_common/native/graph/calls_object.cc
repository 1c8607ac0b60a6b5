// Calls about user objects.
#include "rgpu_common/native/graph/calls.h"

namespace rgpu::graph {
namespace {

std::shared_ptr<UserObject> Find(const Model& model, CUuserObject object) {
  const auto it = model.objects.find(Raw(object));
  return it == model.objects.end() ? nullptr : it->second;
}

// A handle is good while the object has references.
void ForgetIfDead(Model& model, const std::shared_ptr<UserObject>& object) {
  if (object->dead()) model.objects.erase(object->handle);
}

}  // namespace

CUresult UserObjectCreate(Model& model, CUuserObject* object_out, void* ptr, CUhostFn destroy,
                          unsigned int initialRefcount, unsigned int) {
  if (destroy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t handle = NewHandle(HandleKind::kUserObject);
  Locked locked(model);
  std::erase_if(model.objects, [](const auto& entry) { return entry.second->dead(); });
  model.objects[handle] = std::make_shared<UserObject>(handle, destroy, ptr, initialRefcount);
  *object_out = As<CUuserObject>(handle);
  return CUDA_SUCCESS;
}

CUresult UserObjectRetain(Model& model, CUuserObject object, unsigned int count) {
  Locked locked(model);
  const auto found = Find(model, object);
  return found != nullptr && found->Retain(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult UserObjectRelease(Model& model, CUuserObject object, unsigned int count) {
  Locked locked(model);
  const auto found = Find(model, object);
  if (found == nullptr || !UserObject::Release(found, count)) return CUDA_ERROR_INVALID_VALUE;
  ForgetIfDead(model, found);
  return CUDA_SUCCESS;
}

CUresult GraphRetainUserObject(Model& model, CUgraph graph, CUuserObject object, unsigned int count,
                               unsigned int flags) {
  Locked locked(model);
  Graph* owner = model.FindGraph(graph);
  const auto found = Find(model, object);
  if (owner == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A move takes references that the program has.
  const bool move = (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  if (move ? !found->Has(count) : !found->Retain(count)) return CUDA_ERROR_INVALID_VALUE;
  owner->references.Take(found, count);
  return CUDA_SUCCESS;
}

CUresult GraphReleaseUserObject(Model& model, CUgraph graph, CUuserObject object,
                                unsigned int count) {
  Locked locked(model);
  Graph* owner = model.FindGraph(graph);
  const auto found = Find(model, object);
  if (owner == nullptr || found == nullptr || !owner->references.Drop(found, count))
    return CUDA_ERROR_INVALID_VALUE;
  ForgetIfDead(model, found);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::graph
