// Occupancy of clusters.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/functions.h"

namespace rgpu::shim {
namespace {

// A device before compute capability 9.0 has no clusters, so it can run none of any size. Launches
// with clusters are not supported yet on devices that have them.
CUresult NoClusters(CUfunction func) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (FindFunction(func) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Device& device = *here.session->devices().Find(here.context->device);
  const bool has = device.Attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  return has ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

}  // namespace

CUresult cuOccupancyMaxPotentialClusterSize(int*, CUfunction func, const CUlaunchConfig*) {
  return NoClusters(func);
}

CUresult cuOccupancyMaxActiveClusters(int*, CUfunction func, const CUlaunchConfig*) {
  return NoClusters(func);
}

}  // namespace rgpu::shim
