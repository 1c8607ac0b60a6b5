// What the model of graphs asks of the shim.
#pragma once

#include "rgpu_common/native/graph/host.h"

namespace rgpu::shim {

class GraphHost final : public graph::Host {
 public:
  CUresult FindStream(CUstream operand, graph::StreamSite* site) override;
  CUresult CurrentContext(CUcontext* context) override;
  CUresult CheckContext(CUcontext context) override;
  CUresult CheckEvent(CUevent event) override;
  CUresult FindKernel(CUfunction function, CUkernel kernel, CUcontext context,
                      graph::KernelSite* site) override;
  CUresult CheckKernel(const graph::KernelParams& params) override;
  CUresult CheckCopy(const graph::CopyParams& params) override;
  CUresult CheckSet(const graph::SetParams& params) override;
  CUresult CheckBatch(const graph::BatchParams& params) override;
  CUresult Allocate(const graph::AllocParams& params,
                    std::shared_ptr<graph::Allocation>* out) override;
  CUresult NewConditional(uint64_t root, graph::ConditionalHandle* handle) override;
  CUresult NewExec(graph::Instance instance, std::shared_ptr<graph::Exec>* exec) override;
  void Destroyed(std::shared_ptr<graph::UserObject> object) override;
};

}  // namespace rgpu::shim
