#include "rgpu_emu/device/graph_operation.h"

#include <utility>

#include "rgpu_emu/device/copy_box.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/launch.h"
#include "rgpu_emu/device/memory_operation.h"
#include "rgpu_emu/device/set.h"

namespace rgpu::emu {
namespace {

CUresult FindContext(CUcontext handle, std::shared_ptr<Context>* context) {
  *context = TheDevice().contexts.Find(Raw(handle));
  if (*context == nullptr || (*context)->dying()) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->Status();
}

// The function that a kernel node runs, and its shape.
CUresult FindLaunch(const graph::KernelParams& params, std::shared_ptr<Function>* function,
                    LaunchShape* shape) {
  std::shared_ptr<Context> context;
  CUresult result = FindContext(params.context, &context);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t handle = params.function != nullptr ? Raw(params.function) : Raw(params.kernel);
  result = FindFunctionIn(context, As<CUfunction>(handle), function);
  if (result != CUDA_SUCCESS) return result;
  std::copy(params.grid, params.grid + 3, shape->grid);
  std::copy(params.block, params.block + 3, shape->block);
  shape->dynamic_shared = params.shared_bytes;
  for (const auto& [id, value] : params.attributes) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    attribute.value = value;
    result = ApplyAttribute(attribute, shape);
    if (result != CUDA_SUCCESS) return result;
  }
  return CheckShape(**function, *shape);
}

CUresult PlanCopy(const CUDA_MEMCPY3D& copy, CopyPlan* plan) {
  base::BoxCopy box;
  const CUresult bad = base::BoxOf(copy, &box);
  return bad == CUDA_SUCCESS ? PlanOf(box, plan) : bad;
}

SetPlan PlanOf(const graph::SetParams& params) {
  const auto& set = params.set;
  return {set.dst, set.pitch, set.width, set.height, set.value, set.elementSize};
}

// Makes the operation of each kind of node.
class Maker {
 public:
  explicit Maker(GraphOperation* out) : out_(*out) {}

  CUresult operator()(const graph::KernelParams& params) {
    std::shared_ptr<Function> function;
    LaunchShape shape;
    CUresult result = FindLaunch(params, &function, &shape);
    if (result != CUDA_SUCCESS) return result;
    if (params.bytes.size() != function->info().param_bytes) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<const ReadyLaunch> ready;
    result = PrepareLaunch(function, shape, params.bytes, &ready);
    if (result != CUDA_SUCCESS) return result;
    out_.context = ready->module->owner();
    out_.run = [ready] { return RunLaunch(*ready); };
    return CUDA_SUCCESS;
  }
  CUresult operator()(const graph::CopyParams& params) {
    CopyPlan plan;
    CUresult result = FindContext(params.context, &out_.context);
    if (result == CUDA_SUCCESS) result = PlanCopy(params.copy, &plan);
    out_.run = [plan] {
      return MoveBytes(plan) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    return result;
  }
  CUresult operator()(const graph::SetParams& params) {
    const SetPlan plan = PlanOf(params);
    PointerKind kind = PointerKind::kInvalid;
    CUresult result = FindContext(params.set.ctx, &out_.context);
    if (result == CUDA_SUCCESS) result = CheckSet(plan, &kind);
    if (kind != PointerKind::kInvalid) out_.run = [plan] { return Fill(plan); };
    return result;
  }
  CUresult operator()(const graph::HostParams& params) {
    out_.run = [params] {
      SetInHostFunction(true);
      params.function(params.data);
      SetInHostFunction(false);
      return CUDA_SUCCESS;
    };
    return CUDA_SUCCESS;
  }
  CUresult operator()(const graph::RecordParams& params) {
    return FindEvent(params.event, &out_.record);
  }
  CUresult operator()(const graph::WaitParams& params) {
    return FindEvent(params.event, &out_.wait);
  }
  CUresult operator()(const graph::BatchParams& params) {
    const CUresult result = FindContext(params.context, &out_.context);
    out_.run = [context = out_.context, operations = params.operations] {
      CUresult ran = CUDA_SUCCESS;
      for (const MemoryOperation& operation : operations) {
        if (ran == CUDA_SUCCESS) ran = RunOperation(*context, operation);
        TheDevice().values.MemoryChanged();
      }
      return ran;
    };
    return result;
  }
  CUresult operator()(const graph::ConditionalParams& params) {
    out_.conditional = true;
    out_.handle = params.handle;
    out_.type = params.type;
    return FindContext(params.context, &out_.context);
  }
  // The memory of alloc nodes is there all the time; child graphs are laid out.
  CUresult operator()(const auto&) { return CUDA_SUCCESS; }

 private:
  static CUresult FindEvent(CUevent handle, std::shared_ptr<Event>* event) {
    *event = TheDevice().events.Find(Raw(handle));
    if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    // Other processes would not learn of its records.
    return (*event)->shared != nullptr ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }

  GraphOperation& out_;
};

}  // namespace

CUresult CheckKernelNode(const graph::KernelParams& params) {
  std::shared_ptr<Function> function;
  LaunchShape shape;
  return FindLaunch(params, &function, &shape);
}

CUresult CheckCopyNode(const graph::CopyParams& params) {
  CopyPlan plan;
  return PlanCopy(params.copy, &plan);
}

CUresult CheckSetNode(const graph::SetParams& params) {
  PointerKind kind = PointerKind::kInvalid;
  return CheckSet(PlanOf(params), &kind);
}

CUresult CheckBatchNode(const graph::BatchParams& params) {
  for (const MemoryOperation& operation : params.operations) {
    if (const CUresult bad = CheckOperation(operation); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult MakeOperation(const graph::Params& params, std::shared_ptr<const GraphOperation>* out) {
  auto made = std::make_shared<GraphOperation>();
  const CUresult result = std::visit(Maker(made.get()), params);
  if (result == CUDA_SUCCESS) *out = std::move(made);
  return result;
}

}  // namespace rgpu::emu
