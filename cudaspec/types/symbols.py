"""Every exported name of cuda.h, cudaProfiler.h and cudaGL.h, and what cuGetProcAddress answers.  Data only.

Facts of the public headers (CUDA 13.0): a name has one or more symbols, each from the CUDA version that brought it.
"""

from cudaspec.model import Symbols

# Names with one symbol, by the CUDA version that introduced it.
ONE: dict[int, str] = {
    2000: (
        "cuArrayDestroy cuCtxAttach cuCtxDetach cuDeviceComputeCapability cuDeviceGet cuDeviceGetAttribute "
        "cuDeviceGetCount cuDeviceGetName cuDeviceGetProperties cuEventCreate cuEventQuery cuEventSynchronize "
        "cuFuncSetBlockShape cuFuncSetSharedSize cuGLInit cuGLRegisterBufferObject cuGLUnmapBufferObject "
        "cuGLUnregisterBufferObject cuInit cuLaunch cuLaunchGrid cuLaunchGridAsync cuMemFreeHost "
        "cuModuleGetFunction cuModuleGetTexRef cuModuleLoad cuModuleLoadData cuModuleLoadFatBinary cuModuleUnload "
        "cuParamSetSize cuParamSetTexRef cuParamSetf cuParamSeti cuParamSetv cuStreamCreate cuTexRefCreate "
        "cuTexRefDestroy cuTexRefGetAddressMode cuTexRefGetArray cuTexRefGetFilterMode cuTexRefGetFlags "
        "cuTexRefGetFormat cuTexRefSetAddressMode cuTexRefSetArray cuTexRefSetFilterMode cuTexRefSetFlags "
        "cuTexRefSetFormat"
    ),
    2010: "cuModuleLoadDataEx",
    2020: "cuDriverGetVersion cuFuncGetAttribute cuMemHostAlloc",
    2030: "cuGLSetBufferObjectMapFlags cuGLUnmapBufferObjectAsync cuMemHostGetFlags",
    3000: (
        "cuFuncSetCacheConfig cuGetExportTable cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage "
        "cuGraphicsSubResourceGetMappedArray cuGraphicsUnregisterResource cuModuleGetSurfRef cuSurfRefGetArray "
        "cuSurfRefSetArray"
    ),
    3010: "cuCtxGetLimit cuCtxSetLimit",
    3020: "cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxSetCacheConfig",
    4000: (
        "cuCtxDisablePeerAccess cuCtxEnablePeerAccess cuCtxGetCurrent cuCtxSetCurrent cuDeviceCanAccessPeer "
        "cuMemHostUnregister cuPointerGetAttribute cuProfilerInitialize cuProfilerStart cuProfilerStop"
    ),
    4010: (
        "cuDeviceGetByPCIBusId cuDeviceGetPCIBusId cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle "
        "cuIpcOpenEventHandle"
    ),
    4020: "cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuFuncSetSharedMemConfig",
    5000: (
        "cuGraphicsResourceGetMappedMipmappedArray cuMipmappedArrayCreate cuMipmappedArrayDestroy "
        "cuMipmappedArrayGetLevel cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc "
        "cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc "
        "cuTexObjectGetTextureDesc cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode "
        "cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray "
        "cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias "
        "cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray"
    ),
    5050: "cuCtxGetStreamPriorityRange cuLinkComplete cuLinkDestroy cuStreamCreateWithPriority",
    6000: "cuGetErrorName cuGetErrorString cuMemAllocManaged cuPointerSetAttribute",
    6050: "cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialBlockSize",
    7000: (
        "cuCtxGetFlags cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRetain "
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSizeWithFlags "
        "cuPointerGetAttributes"
    ),
    8000: (
        "cuDeviceGetP2PAttribute cuMemRangeGetAttribute cuMemRangeGetAttributes cuTexRefGetBorderColor "
        "cuTexRefSetBorderColor"
    ),
    9000: "cuFuncSetAttribute cuLaunchCooperativeKernelMultiDevice",
    10000: (
        "cuDestroyExternalMemory cuDestroyExternalSemaphore cuDeviceGetLuid cuExternalMemoryGetMappedBuffer "
        "cuExternalMemoryGetMappedMipmappedArray cuGraphAddChildGraphNode cuGraphAddEmptyNode cuGraphAddHostNode "
        "cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphChildGraphNodeGetGraph cuGraphClone cuGraphCreate "
        "cuGraphDestroy cuGraphDestroyNode cuGraphExecDestroy cuGraphGetNodes cuGraphGetRootNodes "
        "cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams "
        "cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphNodeFindInClone cuGraphNodeGetType "
        "cuImportExternalMemory cuImportExternalSemaphore"
    ),
    10010: "cuThreadExchangeStreamCaptureMode",
    10020: (
        "cuDeviceGetNvSciSyncAttributes cuGraphExecHostNodeSetParams cuGraphExecMemcpyNodeSetParams "
        "cuGraphExecMemsetNodeSetParams cuMemAddressFree cuMemAddressReserve cuMemCreate "
        "cuMemExportToShareableHandle cuMemGetAccess cuMemGetAllocationGranularity "
        "cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap cuMemRelease "
        "cuMemSetAccess cuMemUnmap cuOccupancyAvailableDynamicSMemPerBlock"
    ),
    11000: (
        "cuCtxResetPersistingL2Cache cuFuncGetModule cuGraphKernelNodeCopyAttributes "
        "cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute cuMemRetainAllocationHandle"
    ),
    11010: (
        "cuArrayGetSparseProperties cuDeviceGetTexture1DLinearMaxWidth cuGraphAddEventRecordNode "
        "cuGraphAddEventWaitNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent "
        "cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphExecChildGraphNodeSetParams "
        "cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent cuMipmappedArrayGetSparseProperties"
    ),
    11020: (
        "cuArrayGetPlane cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool "
        "cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode "
        "cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams "
        "cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams "
        "cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuMemPoolCreate "
        "cuMemPoolDestroy cuMemPoolExportPointer cuMemPoolExportToShareableHandle cuMemPoolGetAccess "
        "cuMemPoolGetAttribute cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPoolSetAccess "
        "cuMemPoolSetAttribute cuMemPoolTrimTo"
    ),
    11030: (
        "cuFlushGPUDirectRDMAWrites cuGraphDebugDotPrint cuGraphReleaseUserObject cuGraphRetainUserObject "
        "cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain"
    ),
    11040: (
        "cuCtxGetExecAffinity cuDeviceGetExecAffinitySupport cuDeviceGetGraphMemAttribute cuDeviceGraphMemTrim "
        "cuDeviceSetGraphMemAttribute cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphInstantiateWithFlags "
        "cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams"
    ),
    11060: (
        "cuArrayGetMemoryRequirements cuGraphNodeGetEnabled cuGraphNodeSetEnabled "
        "cuMipmappedArrayGetMemoryRequirements"
    ),
    11070: (
        "cuGraphAddBatchMemOpNode cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams "
        "cuGraphExecBatchMemOpNodeSetParams cuMemGetHandleForAddressRange cuModuleGetLoadingMode "
        "cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize"
    ),
    12000: (
        "cuCtxGetId cuGraphExecGetFlags cuKernelGetAttribute cuKernelGetFunction cuKernelSetAttribute "
        "cuKernelSetCacheConfig cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetManaged cuLibraryGetModule "
        "cuLibraryGetUnifiedFunction cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload "
        "cuTensorMapEncodeIm2col cuTensorMapEncodeTiled cuTensorMapReplaceAddress"
    ),
    12010: (
        "cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal "
        "cuCtxSetFlags cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate "
        "cuMulticastGetGranularity cuMulticastUnbind"
    ),
    12020: "cuGraphExecNodeSetParams cuGraphNodeSetParams",
    12030: "cuFuncGetName cuGraphConditionalHandleCreate cuKernelGetName",
    12040: (
        "cuCtxFromGreenCtx cuCtxGetDevResource cuDevResourceGenerateDesc cuDevSmResourceSplitByCount "
        "cuDeviceGetDevResource cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification "
        "cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource "
        "cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuKernelGetParamInfo cuLibraryEnumerateKernels "
        "cuLibraryGetKernelCount cuModuleEnumerateFunctions cuModuleGetFunctionCount cuStreamGetGreenCtx"
    ),
    12050: "cuCtxRecordEvent cuCtxWaitEvent cuGreenCtxStreamCreate cuKernelGetLibrary",
    12080: (
        "cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState "
        "cuCheckpointProcessLock cuCheckpointProcessRestore cuCheckpointProcessUnlock cuTensorMapEncodeIm2colWide"
    ),
    12090: (
        "cuGreenCtxGetId cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback "
        "cuLogsUnregisterCallback"
    ),
    13000: (
        "cuDeviceGetHostAtomicCapabilities cuDeviceGetP2PAtomicCapabilities cuMemGetDefaultMemPool "
        "cuMemGetMemPool cuMemSetMemPool"
    ),
}

# The same for names with a twin `NAME_ptsz`.
ONE_PTSZ: dict[int, str] = {
    2000: "cuEventRecord cuStreamQuery cuStreamSynchronize",
    3000: "cuGraphicsMapResources cuGraphicsUnmapResources",
    3020: (
        "cuMemsetD16Async cuMemsetD2D16Async cuMemsetD2D32Async cuMemsetD2D8Async cuMemsetD32Async "
        "cuMemsetD8Async cuStreamWaitEvent"
    ),
    4000: "cuLaunchKernel cuMemcpy3DPeerAsync cuMemcpyAsync cuMemcpyPeerAsync",
    5000: "cuStreamAddCallback",
    5050: "cuStreamGetFlags cuStreamGetPriority",
    6000: "cuStreamAttachMemAsync",
    9000: "cuLaunchCooperativeKernel",
    10000: (
        "cuGraphLaunch cuLaunchHostFunc cuSignalExternalSemaphoresAsync cuStreamEndCapture cuStreamIsCapturing "
        "cuWaitExternalSemaphoresAsync"
    ),
    11000: "cuStreamCopyAttributes cuStreamGetAttribute cuStreamSetAttribute",
    11010: "cuEventRecordWithFlags cuGraphUpload cuMemMapArrayAsync",
    11020: "cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync",
    11060: "cuLaunchKernelEx",
    12000: "cuGraphInstantiateWithParams cuStreamGetId",
    12030: "cuStreamBeginCaptureToGraph",
    12060: "cuMemBatchDecompressAsync",
    12080: "cuStreamGetDevice",
    13000: "cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync cuMemPrefetchBatchAsync",
}

# The same for names with a twin `NAME_ptds`.
ONE_PTDS: dict[int, str] = {
    4000: "cuMemcpy cuMemcpy3DPeer cuMemcpyPeer",
}

# Names with several symbols, oldest first.
MANY = [
    Symbols("cuArray3DCreate", ((2000, "cuArray3DCreate"), (3020, "cuArray3DCreate_v2"))),
    Symbols("cuArray3DGetDescriptor", ((2000, "cuArray3DGetDescriptor"), (3020, "cuArray3DGetDescriptor_v2"))),
    Symbols("cuArrayCreate", ((2000, "cuArrayCreate"), (3020, "cuArrayCreate_v2"))),
    Symbols("cuArrayGetDescriptor", ((2000, "cuArrayGetDescriptor"), (3020, "cuArrayGetDescriptor_v2"))),
    Symbols("cuCtxCreate", ((2000, "cuCtxCreate"), (3020, "cuCtxCreate_v2"), (11040, "cuCtxCreate_v3"), (12050, "cuCtxCreate_v4"))),
    Symbols("cuCtxDestroy", ((2000, "cuCtxDestroy"), (4000, "cuCtxDestroy_v2"))),
    Symbols("cuCtxGetDevice", ((2000, "cuCtxGetDevice"), (13000, "cuCtxGetDevice_v2"))),
    Symbols("cuCtxPopCurrent", ((2000, "cuCtxPopCurrent"), (4000, "cuCtxPopCurrent_v2"))),
    Symbols("cuCtxPushCurrent", ((2000, "cuCtxPushCurrent"), (4000, "cuCtxPushCurrent_v2"))),
    Symbols("cuCtxSynchronize", ((2000, "cuCtxSynchronize"), (13000, "cuCtxSynchronize_v2"))),
    Symbols("cuDeviceGetUuid", ((9020, "cuDeviceGetUuid"), (11040, "cuDeviceGetUuid_v2"))),
    Symbols("cuDevicePrimaryCtxRelease", ((7000, "cuDevicePrimaryCtxRelease"), (11000, "cuDevicePrimaryCtxRelease_v2"))),
    Symbols("cuDevicePrimaryCtxReset", ((7000, "cuDevicePrimaryCtxReset"), (11000, "cuDevicePrimaryCtxReset_v2"))),
    Symbols("cuDevicePrimaryCtxSetFlags", ((7000, "cuDevicePrimaryCtxSetFlags"), (11000, "cuDevicePrimaryCtxSetFlags_v2"))),
    Symbols("cuDeviceTotalMem", ((2000, "cuDeviceTotalMem"), (3020, "cuDeviceTotalMem_v2"))),
    Symbols("cuEventDestroy", ((2000, "cuEventDestroy"), (4000, "cuEventDestroy_v2"))),
    Symbols("cuEventElapsedTime", ((2000, "cuEventElapsedTime"), (12080, "cuEventElapsedTime_v2"))),
    Symbols("cuGetProcAddress", ((11030, "cuGetProcAddress"), (12000, "cuGetProcAddress_v2"))),
    Symbols("cuGraphAddDependencies", ((10000, "cuGraphAddDependencies"), (12030, "cuGraphAddDependencies_v2"))),
    Symbols("cuGraphAddKernelNode", ((10000, "cuGraphAddKernelNode"), (12000, "cuGraphAddKernelNode_v2"))),
    Symbols("cuGraphAddNode", ((12020, "cuGraphAddNode"), (12030, "cuGraphAddNode_v2"))),
    Symbols("cuGraphExecKernelNodeSetParams", ((10010, "cuGraphExecKernelNodeSetParams"), (12000, "cuGraphExecKernelNodeSetParams_v2"))),
    Symbols("cuGraphExecUpdate", ((10020, "cuGraphExecUpdate"), (12000, "cuGraphExecUpdate_v2"))),
    Symbols("cuGraphGetEdges", ((10000, "cuGraphGetEdges"), (12030, "cuGraphGetEdges_v2"))),
    Symbols("cuGraphInstantiate", ((10000, "cuGraphInstantiate"), (11000, "cuGraphInstantiate_v2"))),
    Symbols("cuGraphKernelNodeGetParams", ((10000, "cuGraphKernelNodeGetParams"), (12000, "cuGraphKernelNodeGetParams_v2"))),
    Symbols("cuGraphKernelNodeSetParams", ((10000, "cuGraphKernelNodeSetParams"), (12000, "cuGraphKernelNodeSetParams_v2"))),
    Symbols("cuGraphNodeGetDependencies", ((10000, "cuGraphNodeGetDependencies"), (12030, "cuGraphNodeGetDependencies_v2"))),
    Symbols("cuGraphNodeGetDependentNodes", ((10000, "cuGraphNodeGetDependentNodes"), (12030, "cuGraphNodeGetDependentNodes_v2"))),
    Symbols("cuGraphRemoveDependencies", ((10000, "cuGraphRemoveDependencies"), (12030, "cuGraphRemoveDependencies_v2"))),
    Symbols("cuGraphicsResourceGetMappedPointer", ((3000, "cuGraphicsResourceGetMappedPointer"), (3020, "cuGraphicsResourceGetMappedPointer_v2"))),
    Symbols("cuGraphicsResourceSetMapFlags", ((3000, "cuGraphicsResourceSetMapFlags"), (6050, "cuGraphicsResourceSetMapFlags_v2"))),
    Symbols("cuIpcOpenMemHandle", ((4010, "cuIpcOpenMemHandle"), (11000, "cuIpcOpenMemHandle_v2"))),
    Symbols("cuLinkAddData", ((5050, "cuLinkAddData"), (6050, "cuLinkAddData_v2"))),
    Symbols("cuLinkAddFile", ((5050, "cuLinkAddFile"), (6050, "cuLinkAddFile_v2"))),
    Symbols("cuLinkCreate", ((5050, "cuLinkCreate"), (6050, "cuLinkCreate_v2"))),
    Symbols("cuMemAdvise", ((8000, "cuMemAdvise"), (12020, "cuMemAdvise_v2"))),
    Symbols("cuMemAlloc", ((2000, "cuMemAlloc"), (3020, "cuMemAlloc_v2"))),
    Symbols("cuMemAllocHost", ((2000, "cuMemAllocHost"), (3020, "cuMemAllocHost_v2"))),
    Symbols("cuMemAllocPitch", ((2000, "cuMemAllocPitch"), (3020, "cuMemAllocPitch_v2"))),
    Symbols("cuMemFree", ((2000, "cuMemFree"), (3020, "cuMemFree_v2"))),
    Symbols("cuMemGetAddressRange", ((2000, "cuMemGetAddressRange"), (3020, "cuMemGetAddressRange_v2"))),
    Symbols("cuMemGetInfo", ((2000, "cuMemGetInfo"), (3020, "cuMemGetInfo_v2"))),
    Symbols("cuMemHostGetDevicePointer", ((2020, "cuMemHostGetDevicePointer"), (3020, "cuMemHostGetDevicePointer_v2"))),
    Symbols("cuMemHostRegister", ((4000, "cuMemHostRegister"), (6050, "cuMemHostRegister_v2"))),
    Symbols("cuMemPrefetchAsync", ((8000, "cuMemPrefetchAsync"), (12020, "cuMemPrefetchAsync_v2")),
            ("cuMemPrefetchAsync_ptsz", "cuMemPrefetchAsync_v2_ptsz")),
    Symbols("cuMemcpy2D", ((2000, "cuMemcpy2D"), (3020, "cuMemcpy2D_v2")), ("cuMemcpy2D_v2_ptds",)),
    Symbols("cuMemcpy2DAsync", ((2000, "cuMemcpy2DAsync"), (3020, "cuMemcpy2DAsync_v2")),
            ("cuMemcpy2DAsync_v2_ptsz",)),
    Symbols("cuMemcpy2DUnaligned", ((2000, "cuMemcpy2DUnaligned"), (3020, "cuMemcpy2DUnaligned_v2")),
            ("cuMemcpy2DUnaligned_v2_ptds",)),
    Symbols("cuMemcpy3D", ((2000, "cuMemcpy3D"), (3020, "cuMemcpy3D_v2")), ("cuMemcpy3D_v2_ptds",)),
    Symbols("cuMemcpy3DAsync", ((2000, "cuMemcpy3DAsync"), (3020, "cuMemcpy3DAsync_v2")),
            ("cuMemcpy3DAsync_v2_ptsz",)),
    Symbols("cuMemcpy3DBatchAsync", ((12080, "cuMemcpy3DBatchAsync"), (13000, "cuMemcpy3DBatchAsync_v2")),
            ("cuMemcpy3DBatchAsync_ptsz", "cuMemcpy3DBatchAsync_v2_ptsz")),
    Symbols("cuMemcpyAtoA", ((2000, "cuMemcpyAtoA"), (3020, "cuMemcpyAtoA_v2")), ("cuMemcpyAtoA_v2_ptds",)),
    Symbols("cuMemcpyAtoD", ((2000, "cuMemcpyAtoD"), (3020, "cuMemcpyAtoD_v2")), ("cuMemcpyAtoD_v2_ptds",)),
    Symbols("cuMemcpyAtoH", ((2000, "cuMemcpyAtoH"), (3020, "cuMemcpyAtoH_v2")), ("cuMemcpyAtoH_v2_ptds",)),
    Symbols("cuMemcpyAtoHAsync", ((2000, "cuMemcpyAtoHAsync"), (3020, "cuMemcpyAtoHAsync_v2")),
            ("cuMemcpyAtoHAsync_v2_ptsz",)),
    Symbols("cuMemcpyBatchAsync", ((12080, "cuMemcpyBatchAsync"), (13000, "cuMemcpyBatchAsync_v2")),
            ("cuMemcpyBatchAsync_ptsz", "cuMemcpyBatchAsync_v2_ptsz")),
    Symbols("cuMemcpyDtoA", ((2000, "cuMemcpyDtoA"), (3020, "cuMemcpyDtoA_v2")), ("cuMemcpyDtoA_v2_ptds",)),
    Symbols("cuMemcpyDtoD", ((2000, "cuMemcpyDtoD"), (3020, "cuMemcpyDtoD_v2")), ("cuMemcpyDtoD_v2_ptds",)),
    Symbols("cuMemcpyDtoDAsync", ((3000, "cuMemcpyDtoDAsync"), (3020, "cuMemcpyDtoDAsync_v2")),
            ("cuMemcpyDtoDAsync_v2_ptsz",)),
    Symbols("cuMemcpyDtoH", ((2000, "cuMemcpyDtoH"), (3020, "cuMemcpyDtoH_v2")), ("cuMemcpyDtoH_v2_ptds",)),
    Symbols("cuMemcpyDtoHAsync", ((2000, "cuMemcpyDtoHAsync"), (3020, "cuMemcpyDtoHAsync_v2")),
            ("cuMemcpyDtoHAsync_v2_ptsz",)),
    Symbols("cuMemcpyHtoA", ((2000, "cuMemcpyHtoA"), (3020, "cuMemcpyHtoA_v2")), ("cuMemcpyHtoA_v2_ptds",)),
    Symbols("cuMemcpyHtoAAsync", ((2000, "cuMemcpyHtoAAsync"), (3020, "cuMemcpyHtoAAsync_v2")),
            ("cuMemcpyHtoAAsync_v2_ptsz",)),
    Symbols("cuMemcpyHtoD", ((2000, "cuMemcpyHtoD"), (3020, "cuMemcpyHtoD_v2")), ("cuMemcpyHtoD_v2_ptds",)),
    Symbols("cuMemcpyHtoDAsync", ((2000, "cuMemcpyHtoDAsync"), (3020, "cuMemcpyHtoDAsync_v2")),
            ("cuMemcpyHtoDAsync_v2_ptsz",)),
    Symbols("cuMemsetD16", ((2000, "cuMemsetD16"), (3020, "cuMemsetD16_v2")), ("cuMemsetD16_v2_ptds",)),
    Symbols("cuMemsetD2D16", ((2000, "cuMemsetD2D16"), (3020, "cuMemsetD2D16_v2")), ("cuMemsetD2D16_v2_ptds",)),
    Symbols("cuMemsetD2D32", ((2000, "cuMemsetD2D32"), (3020, "cuMemsetD2D32_v2")), ("cuMemsetD2D32_v2_ptds",)),
    Symbols("cuMemsetD2D8", ((2000, "cuMemsetD2D8"), (3020, "cuMemsetD2D8_v2")), ("cuMemsetD2D8_v2_ptds",)),
    Symbols("cuMemsetD32", ((2000, "cuMemsetD32"), (3020, "cuMemsetD32_v2")), ("cuMemsetD32_v2_ptds",)),
    Symbols("cuMemsetD8", ((2000, "cuMemsetD8"), (3020, "cuMemsetD8_v2")), ("cuMemsetD8_v2_ptds",)),
    Symbols("cuModuleGetGlobal", ((2000, "cuModuleGetGlobal"), (3020, "cuModuleGetGlobal_v2"))),
    Symbols("cuStreamBatchMemOp", ((8000, "cuStreamBatchMemOp"), (11070, "cuStreamBatchMemOp_v2")),
            ("cuStreamBatchMemOp_ptsz", "cuStreamBatchMemOp_v2_ptsz")),
    Symbols("cuStreamBeginCapture", ((10000, "cuStreamBeginCapture"), (10010, "cuStreamBeginCapture_v2")),
            ("cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz")),
    Symbols("cuStreamDestroy", ((2000, "cuStreamDestroy"), (4000, "cuStreamDestroy_v2"))),
    Symbols("cuStreamGetCaptureInfo", ((10010, "cuStreamGetCaptureInfo"), (11030, "cuStreamGetCaptureInfo_v2"), (12030, "cuStreamGetCaptureInfo_v3")),
            ("cuStreamGetCaptureInfo_ptsz", "cuStreamGetCaptureInfo_v2_ptsz", "cuStreamGetCaptureInfo_v3_ptsz")),
    Symbols("cuStreamGetCtx", ((9020, "cuStreamGetCtx"), (12050, "cuStreamGetCtx_v2")),
            ("cuStreamGetCtx_ptsz", "cuStreamGetCtx_v2_ptsz")),
    Symbols("cuStreamUpdateCaptureDependencies", ((11030, "cuStreamUpdateCaptureDependencies"), (12030, "cuStreamUpdateCaptureDependencies_v2")),
            ("cuStreamUpdateCaptureDependencies_ptsz", "cuStreamUpdateCaptureDependencies_v2_ptsz")),
    Symbols("cuStreamWaitValue32", ((8000, "cuStreamWaitValue32"), (11070, "cuStreamWaitValue32_v2")),
            ("cuStreamWaitValue32_ptsz", "cuStreamWaitValue32_v2_ptsz")),
    Symbols("cuStreamWaitValue64", ((9000, "cuStreamWaitValue64"), (11070, "cuStreamWaitValue64_v2")),
            ("cuStreamWaitValue64_ptsz", "cuStreamWaitValue64_v2_ptsz")),
    Symbols("cuStreamWriteValue32", ((8000, "cuStreamWriteValue32"), (11070, "cuStreamWriteValue32_v2")),
            ("cuStreamWriteValue32_ptsz", "cuStreamWriteValue32_v2_ptsz")),
    Symbols("cuStreamWriteValue64", ((9000, "cuStreamWriteValue64"), (11070, "cuStreamWriteValue64_v2")),
            ("cuStreamWriteValue64_ptsz", "cuStreamWriteValue64_v2_ptsz")),
    Symbols("cuTexRefGetAddress", ((2000, "cuTexRefGetAddress"), (3020, "cuTexRefGetAddress_v2"))),
    Symbols("cuTexRefSetAddress", ((2000, "cuTexRefSetAddress"), (3020, "cuTexRefSetAddress_v2"))),
    Symbols("cuTexRefSetAddress2D", ((2020, "cuTexRefSetAddress2D"), (3020, "cuTexRefSetAddress2D_v2"), (4010, "cuTexRefSetAddress2D_v3"))),
    Symbols("cuGLCtxCreate", ((2000, "cuGLCtxCreate"), (3020, "cuGLCtxCreate_v2"))),
    Symbols("cuGLGetDevices", ((4010, "cuGLGetDevices"), (6050, "cuGLGetDevices_v2"))),
    Symbols("cuGLMapBufferObject", ((2000, "cuGLMapBufferObject"), (3020, "cuGLMapBufferObject_v2")),
            ("cuGLMapBufferObject_v2_ptds",)),
    Symbols("cuGLMapBufferObjectAsync", ((2030, "cuGLMapBufferObjectAsync"), (3020, "cuGLMapBufferObjectAsync_v2")),
            ("cuGLMapBufferObjectAsync_v2_ptsz",)),
]

# Exported symbols outside the driver API, by library.
EXTRA: dict[str, tuple[str, ...]] = {
    "shim": ("rgpu_shim_state", "rgpu_shim_version"),
    "emu": (
        "rgpu_emu_fault", "rgpu_emu_heap", "rgpu_emu_log_to", "rgpu_emu_reason", "rgpu_emu_required_block",
        "rgpu_emu_window", "rgpu_emu_set_aside", "rgpu_emu_give_back", "rgpu_emu_back",
    ),
}
