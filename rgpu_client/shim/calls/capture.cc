// Stream capture. This release does not support it, so every stream answers that it is not
// capturing.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {
namespace {

CUresult NotCapturing(CUstream stream, CUstreamCaptureStatus* out) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  *out = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return NotCapturing(hStream, captureStatus);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t*) {
  return NotCapturing(hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*) {
  return NotCapturing(hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t*, CUgraph*, const CUgraphNode**,
                                   const CUgraphEdgeData**, size_t*) {
  return NotCapturing(hStream, captureStatus_out);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int before = ThisThread().capture_mode;
  ThisThread().capture_mode = *mode;
  *mode = static_cast<CUstreamCaptureMode>(before);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
