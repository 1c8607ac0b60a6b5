// Executable graphs of the device.
#pragma once

#include <memory>
#include <vector>

#include "rgpu_common/native/graph/instance.h"
#include "rgpu_emu/device/graph_run.h"

namespace rgpu::emu {

class GraphExec : public graph::Exec {
 public:
  // Compiles every node.
  static CUresult Make(graph::Instance made, std::shared_ptr<graph::Exec>* out);

  CUresult NodeChanged(uint32_t number) override;
  CUresult Updated(uint64_t handles_of) override;
  CUresult Upload(CUstream stream) override;
  CUresult Launch(CUstream stream) override;

 private:
  using Operations = std::vector<std::shared_ptr<const GraphOperation>>;

  CUresult Compile(Operations* out) const;
  CUresult CompileNode(uint32_t number, std::shared_ptr<const GraphOperation>* out) const;
  // The snapshot that launches run.
  const std::shared_ptr<const GraphProgram>& Program();
  const std::shared_ptr<GraphLanes>& LanesIn(const std::shared_ptr<Context>& context);

  std::shared_ptr<const GraphLayout> layout_;
  std::vector<graph::ConditionalHandle> values_;
  Operations operations_;
  std::shared_ptr<const GraphProgram> program_;  // null: the operations have changed since
  std::weak_ptr<Context> lanes_in_;
  std::shared_ptr<GraphLanes> lanes_;
  Fence last_;  // launches of one executable follow each other
};

}  // namespace rgpu::emu
