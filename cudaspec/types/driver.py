"""The driver functions that the executor calls, resolved from NVIDIA's library or the emulated device.  Data only."""

FUNCTIONS = [
    # Devices and contexts.
    "cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
    "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute", "cuDeviceGetPCIBusId", "cuDeviceGetDefaultMemPool",
    "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2",
    "cuDevicePrimaryCtxSetFlags_v2", "cuDevicePrimaryCtxGetState",
    "cuCtxCreate_v2", "cuCtxCreate_v4", "cuCtxDestroy_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
    "cuCtxSetCurrent", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxSynchronize", "cuCtxSetLimit", "cuCtxGetLimit",
    "cuCtxSetCacheConfig", "cuCtxGetCacheConfig", "cuCtxSetSharedMemConfig", "cuCtxResetPersistingL2Cache",
    "cuCtxSetFlags", "cuCtxGetFlags", "cuCtxGetStreamPriorityRange", "cuCtxGetApiVersion",
    # Modules, libraries, functions, the linker.
    "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuModuleGetGlobal_v2",
    "cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", "cuModuleGetLoadingMode",
    "cuLibraryLoadData", "cuLibraryUnload", "cuLibraryGetKernel", "cuLibraryGetModule", "cuLibraryGetGlobal",
    "cuLibraryGetKernelCount", "cuLibraryEnumerateKernels",
    "cuKernelGetFunction", "cuKernelGetAttribute", "cuKernelSetAttribute", "cuKernelSetCacheConfig",
    "cuKernelGetName", "cuKernelGetParamInfo",
    "cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig", "cuFuncGetModule",
    "cuFuncGetName", "cuFuncGetParamInfo", "cuFuncIsLoaded", "cuFuncLoad",
    "cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete", "cuLinkDestroy",
    # Launches and occupancy.
    "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuLaunchHostFunc",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cuOccupancyAvailableDynamicSMemPerBlock",
    "cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags",
    # Memory.
    "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuMemGetAddressRange_v2",
    "cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister_v2", "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2", "cuPointerGetAttribute",
    "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync", "cuMemcpy2DAsync_v2", "cuMemcpyPeerAsync",
    "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async",
    "cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async",
    "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync",
    "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAttribute", "cuMemPoolGetAttribute",
    # Arrays, textures, and copies of boxes.
    "cuArray3DCreate_v2", "cuArray3DGetDescriptor_v2", "cuArrayDestroy", "cuArrayGetPlane",
    "cuMipmappedArrayCreate", "cuMipmappedArrayGetLevel", "cuMipmappedArrayDestroy",
    "cuTexObjectCreate", "cuTexObjectDestroy", "cuSurfObjectCreate", "cuSurfObjectDestroy",
    "cuMemcpy3DAsync_v2", "cuMemcpy3DPeerAsync",
    "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide", "cuTensorMapReplaceAddress",
    # Virtual memory management.
    "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemUnmap",
    "cuMemSetAccess", "cuMemGetAllocationGranularity",
    # Sharing with other processes.
    "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuIpcGetEventHandle", "cuIpcOpenEventHandle",
    # Streams and events.
    "cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamQuery",
    "cuStreamWaitEvent", "cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2", "cuStreamWriteValue32_v2",
    "cuStreamWriteValue64_v2", "cuStreamBatchMemOp_v2", "cuStreamGetPriority",
    "cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventRecordWithFlags", "cuEventQuery",
    "cuEventSynchronize", "cuEventElapsedTime_v2",
    # Graphs.
    "cuGraphCreate", "cuGraphDestroy", "cuGraphAddEmptyNode", "cuGraphAddKernelNode_v2", "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode", "cuGraphAddHostNode", "cuGraphAddEventRecordNode", "cuGraphAddEventWaitNode",
    "cuGraphAddBatchMemOpNode", "cuGraphAddChildGraphNode", "cuGraphChildGraphNodeGetGraph", "cuGraphAddNode_v2",
    "cuGraphAddDependencies_v2", "cuGraphKernelNodeSetAttribute", "cuGraphConditionalHandleCreate",
    "cuGraphInstantiateWithFlags", "cuGraphExecUpdate_v2", "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams", "cuGraphExecEventRecordNodeSetEvent",
    "cuGraphExecEventWaitNodeSetEvent", "cuGraphExecBatchMemOpNodeSetParams", "cuGraphNodeSetEnabled", "cuGraphUpload",
    "cuGraphLaunch", "cuGraphExecDestroy",
    "cuProfilerStart", "cuProfilerStop",
]

# Null if an older driver lacks them.
OPTIONAL = [
    "cuCtxCreate_v4", "cuStreamBatchMemOp_v2", "cuEventElapsedTime_v2", "cuFuncIsLoaded", "cuFuncLoad", "cuFuncGetParamInfo",
    "cuKernelGetParamInfo", "cuFuncGetName", "cuKernelGetName", "cuModuleGetFunctionCount",
    "cuModuleEnumerateFunctions", "cuLibraryGetKernelCount", "cuLibraryEnumerateKernels", "cuCtxSetFlags",
    "cuArrayGetPlane", "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide",
    "cuTensorMapReplaceAddress",
    "cuGraphAddNode_v2", "cuGraphAddDependencies_v2", "cuGraphConditionalHandleCreate", "cuGraphExecUpdate_v2",
]
