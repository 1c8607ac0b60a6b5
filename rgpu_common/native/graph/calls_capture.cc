// Calls of stream capture.
#include <utility>

#include "rgpu_common/native/graph/add_node.h"
#include "rgpu_common/native/graph/calls.h"
#include "rgpu_common/native/graph/hooks.h"

namespace rgpu::graph {
namespace {

CUresult Begin(Model& model, const StreamSite& stream, CUstreamCaptureMode mode,
               std::shared_ptr<Graph> graph, std::vector<Edge> before) {
  return model.captures.Begin(stream, ThisThread(), mode, std::move(graph), std::move(before));
}

// Keeps the dependencies in the arrays of the stream, which the call returns.
const CaptureArrays& ArraysOf(Model& model, const StreamSite& stream,
                              const std::vector<Edge>& before) {
  CaptureArrays& arrays = model.arrays[stream.id];
  arrays = {};
  for (const Edge& edge : before) {
    arrays.nodes.push_back(As<CUgraphNode>(edge.node->handle));
    arrays.edges.push_back(edge.data);
  }
  return arrays;
}

}  // namespace

CUresult StreamBeginCapture(Model& model, CUstream hStream, CUstreamCaptureMode mode) {
  StreamSite stream;
  const CUresult found = model.host.FindStream(hStream, &stream);
  if (found != CUDA_SUCCESS) return found;
  auto graph = std::make_shared<Graph>();
  Locked locked(model);
  model.Publish(graph.get());
  const CUresult result = Begin(model, stream, mode, graph, {});
  if (result != CUDA_SUCCESS) model.Withdraw(graph.get());
  return result;
}

CUresult StreamBeginCaptureToGraph(Model& model, CUstream hStream, CUgraph hGraph,
                                   const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                   CUstreamCaptureMode mode) {
  StreamSite stream;
  CUresult result = model.host.FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  Locked locked(model);
  const auto it = model.graphs.find(Raw(hGraph));
  // A body of a conditional node has no owner but its node.
  Graph* graph = model.FindGraph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Graph> shared;
  if (it != model.graphs.end()) shared = it->second;
  if (shared == nullptr && graph->owner != nullptr) {
    for (const auto& inside : InsideOf(*graph->owner)) {
      if (inside.get() == graph) shared = inside;
    }
  }
  if (shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> before;
  result = FindDependencies(model, *graph, {hGraph, dependencies, dependencyData, numDependencies},
                            CU_GRAPH_NODE_TYPE_KERNEL, &before);
  return result == CUDA_SUCCESS ? Begin(model, stream, mode, shared, std::move(before)) : result;
}

CUresult ThreadExchangeStreamCaptureMode(Model&, CUstreamCaptureMode* mode) {
  if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, ThisThreadMode());
  return CUDA_SUCCESS;
}

CUresult StreamEndCapture(Model& model, CUstream hStream, CUgraph* phGraph) {
  StreamSite stream;
  const CUresult found = model.host.FindStream(hStream, &stream);
  if (found != CUDA_SUCCESS) return found;
  *phGraph = nullptr;
  Locked locked(model);
  CaptureEnd end = model.captures.End(stream, ThisThread());
  if (end.graph == nullptr) return end.result;
  model.arrays.erase(stream.id);
  if (!model.captures.active()) model.arrays.clear();
  // A graph that the capture made belongs to the program from now on.
  const bool given = model.graphs.contains(end.graph->handle) || end.graph->owner != nullptr;
  if (end.result == CUDA_SUCCESS) {
    *phGraph = As<CUgraph>(end.graph->handle);
    if (!given) model.graphs[end.graph->handle] = std::move(end.graph);
  } else if (!given) {
    model.Withdraw(end.graph.get());
    locked.Drop(std::move(end.graph));
  }
  return end.result;
}

CUresult StreamGetCaptureInfoV3(Model& model, CUstream hStream,
                                CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  StreamSite stream;
  const CUresult found = model.host.FindStream(hStream, &stream);
  if (found != CUDA_SUCCESS) return found;
  Locked locked(model);
  CaptureInfo info;
  const CUresult result = model.captures.Info(stream, &info);
  if (result != CUDA_SUCCESS) return result;
  *captureStatus_out = info.status;
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (edgeData_out == nullptr && dependencies_out != nullptr) {
    for (const Edge& edge : info.before) {
      if (!IsPlain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
    }
  }
  const CaptureArrays& arrays = ArraysOf(model, stream, info.before);
  if (id_out != nullptr) *id_out = info.id;
  if (graph_out != nullptr) *graph_out = As<CUgraph>(info.graph->handle);
  if (dependencies_out != nullptr) *dependencies_out = arrays.nodes.data();
  if (edgeData_out != nullptr) *edgeData_out = arrays.edges.data();
  if (numDependencies_out != nullptr) *numDependencies_out = arrays.nodes.size();
  return CUDA_SUCCESS;
}

CUresult StreamGetCaptureInfoV2(Model& model, CUstream hStream,
                                CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                size_t* numDependencies_out) {
  return StreamGetCaptureInfoV3(model, hStream, captureStatus_out, id_out, graph_out,
                                dependencies_out, nullptr, numDependencies_out);
}

CUresult StreamGetCaptureInfo(Model& model, CUstream hStream,
                              CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out) {
  return StreamGetCaptureInfoV3(model, hStream, captureStatus_out, id_out, nullptr, nullptr,
                                nullptr, nullptr);
}

CUresult StreamIsCapturing(Model& model, CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return StreamGetCaptureInfo(model, hStream, captureStatus, nullptr);
}

CUresult StreamUpdateCaptureDependencies(Model& model, CUstream hStream, CUgraphNode* dependencies,
                                         const CUgraphEdgeData* dependencyData,
                                         size_t numDependencies, unsigned int flags) {
  StreamSite stream;
  CUresult result = model.host.FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  Locked locked(model);
  const std::shared_ptr<Graph> graph = model.captures.GraphOf(stream);
  std::vector<Edge> before;
  if (graph != nullptr) {
    const Place place{As<CUgraph>(graph->handle), dependencies, dependencyData, numDependencies};
    result = FindDependencies(model, *graph, place, CU_GRAPH_NODE_TYPE_KERNEL, &before);
  }
  if (result != CUDA_SUCCESS) return result;
  return model.captures.UpdateDependencies(stream, before,
                                           flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

}  // namespace rgpu::graph
