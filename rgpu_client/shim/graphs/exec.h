// Executable graphs of the shim: the worker has the driver's.
#pragma once

#include <memory>
#include <vector>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/graph_sides.h"
#include "rgpu_common/native/graph/instance.h"

namespace rgpu::shim {

// Makes an executable graph in the current context.
CUresult MakeExec(graph::Instance instance, std::shared_ptr<graph::Exec>* exec);

class RemoteExec final : public graph::Exec {
 public:
  RemoteExec(Session* session, graph::Instance made);
  ~RemoteExec() override;

  // Sends the definition. Calls of the base class may follow a success only.
  CUresult Instantiate(const Here& here);

  CUresult NodeChanged(uint32_t number) override;
  CUresult Updated(uint64_t handles_of) override;
  CUresult Upload(CUstream stream) override;
  CUresult Launch(CUstream stream) override;

 private:
  // What the worker has of a node.
  struct Sent {
    bool enabled = true;
    uint64_t function = 0;  // or the kernel, of a kernel node
  };
  class Records;

  CUresult Home(Here* here) const;
  CUresult PutDefinition(const Here& here, uint64_t* image) const;
  CUresult SendNode(const Here& here, uint32_t number);
  CUresult SendUpdate(const Here& here, uint64_t image, uint64_t handles_of) const;
  void Remember(const Here& here);
  Sent StateOf(uint32_t number) const;
  std::vector<Event*> RecordedEvents(const Here& here) const;

  Session* const session_;
  uint64_t id_ = 0;
  uint32_t context_ = 0;  // in which it was instantiated
  bool made_ = false;
  bool waits_for_values_ = false;
  std::vector<Sent> sent_;
  std::vector<uint64_t> recorded_;  // the events that its nodes record
  std::shared_ptr<const GraphSides> sides_;
};

}  // namespace rgpu::shim
