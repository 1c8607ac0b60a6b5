"""Functions without an answer.  Data only."""

from cudaspec.nvml_model import Refused

REFUSED = [
    Refused(
        "NVML_ERROR_NO_PERMISSION",
        "it changes the device, which belongs to the node's operator and which other leases use",
        """
        nvmlDeviceClearAccountingPids nvmlDeviceClearCpuAffinity
        nvmlDeviceClearEccErrorCounts nvmlDeviceClearFieldValues nvmlDeviceDiscoverGpus
        nvmlDeviceFreezeNvLinkUtilizationCounter nvmlDeviceModifyDrainState
        nvmlDevicePowerSmoothingActivatePresetProfile nvmlDevicePowerSmoothingSetState
        nvmlDevicePowerSmoothingUpdatePresetProfileParam nvmlDeviceReadWritePRM_v1
        nvmlDeviceRemoveGpu nvmlDeviceRemoveGpu_v2 nvmlDeviceResetApplicationsClocks
        nvmlDeviceResetGpuLockedClocks nvmlDeviceResetMemoryLockedClocks
        nvmlDeviceResetNvLinkErrorCounters nvmlDeviceResetNvLinkUtilizationCounter
        nvmlDeviceSetAPIRestriction nvmlDeviceSetAccountingMode
        nvmlDeviceSetAdaptiveTgpMode_v1 nvmlDeviceSetApplicationsClocks
        nvmlDeviceSetAutoBoostedClocksEnabled nvmlDeviceSetClockOffsets
        nvmlDeviceSetComputeMode nvmlDeviceSetConfComputeUnprotectedMemSize
        nvmlDeviceSetCpuAffinity nvmlDeviceSetDefaultAutoBoostedClocksEnabled
        nvmlDeviceSetDefaultFanSpeed_v2 nvmlDeviceSetDramEncryptionMode
        nvmlDeviceSetDriverModel nvmlDeviceSetEccMode nvmlDeviceSetFanControlPolicy
        nvmlDeviceSetFanSpeed_v2 nvmlDeviceSetGpcClkVfOffset nvmlDeviceSetGpuLockedClocks
        nvmlDeviceSetGpuOperationMode nvmlDeviceSetHostname_v1 nvmlDeviceSetMemClkVfOffset
        nvmlDeviceSetMemoryLimits_v1 nvmlDeviceSetMemoryLockedClocks nvmlDeviceSetMigMode
        nvmlDeviceSetNvLinkDeviceLowPowerThreshold nvmlDeviceSetNvLinkUtilizationControl
        nvmlDeviceSetNvlinkBwMode nvmlDeviceSetNvlinkBwModeAsync_v1
        nvmlDeviceSetPersistenceMode nvmlDeviceSetPowerManagementLimit
        nvmlDeviceSetPowerManagementLimit_v2 nvmlDeviceSetPowerMizerMode_v1
        nvmlDeviceSetRusdSettings_v1 nvmlDeviceSetTemperatureThreshold
        nvmlDeviceValidateInforom nvmlDeviceWorkloadPowerProfileClearRequestedProfiles
        nvmlDeviceWorkloadPowerProfileSetRequestedProfiles
        nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1 nvmlGpmSetStreamingEnabled
        nvmlSystemSetConfComputeGpusReadyState
        nvmlSystemSetConfComputeKeyRotationThresholdInfo nvmlSystemSetNvlinkBwMode
    """,
    ),
    Refused(
        "NVML_ERROR_NO_PERMISSION",
        "it names the node's hardware, which a tenant does not see",
        """
        nvmlDeviceGetBBXTimeData_v1 nvmlDeviceGetBoardId nvmlDeviceGetBoardPartNumber
        nvmlDeviceGetGspFirmwareMode nvmlDeviceGetGspFirmwareVersion
        nvmlDeviceGetHandleBySerial nvmlDeviceGetHostname_v1
        nvmlDeviceGetInforomConfigurationChecksum nvmlDeviceGetInforomImageVersion
        nvmlDeviceGetInforomVersion nvmlDeviceGetIrqNum nvmlDeviceGetLastBBXFlushTime
        nvmlDeviceGetMinorNumber nvmlDeviceGetModuleId nvmlDeviceGetMultiGpuBoard
        nvmlDeviceGetPdi nvmlDeviceGetPlatformInfo nvmlDeviceGetSerial
        nvmlDeviceGetVbiosVersion nvmlDeviceOnSameBoard nvmlSystemGetDriverBranch
    """,
    ),
    Refused(
        "NVML_ERROR_NO_PERMISSION",
        "it counts what all leases on the device do",
        """
        nvmlDeviceGetAccountingBufferSize nvmlDeviceGetAccountingMode
        nvmlDeviceGetAccountingPids nvmlDeviceGetAccountingStats
        nvmlDeviceGetAccountingStats_v2 nvmlDeviceGetNvLinkTelemetrySamples_v1
        nvmlDeviceGetPcieThroughput nvmlDeviceGetSamples nvmlDeviceGetTotalEnergyConsumption
        nvmlDeviceGetViolationStatus nvmlDevicePerfMetricsGetSamples_v1
        nvmlDeviceReadPRMCounters_v1 nvmlGpmMetricsGet nvmlGpmQueryDeviceSupport
        nvmlGpmQueryIfStreamingEnabled nvmlGpmSampleAlloc nvmlGpmSampleFree nvmlGpmSampleGet
    """,
    ),
    Refused(
        "NVML_ERROR_NO_PERMISSION",
        "it tells of faults of the node's hardware, which its operator sees",
        """
        nvmlDeviceGetBankRemapperStatus_v1 nvmlDeviceGetDefaultEccMode
        nvmlDeviceGetDetailedEccErrors nvmlDeviceGetDramEncryptionMode
        nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetPcieReplayCounter
        nvmlDeviceGetRemappedRows nvmlDeviceGetRemappedRows_v2 nvmlDeviceGetRepairStatus
        nvmlDeviceGetRetiredPages nvmlDeviceGetRetiredPagesPendingStatus
        nvmlDeviceGetRetiredPages_v2 nvmlDeviceGetRowRemapperHistogram
        nvmlDeviceGetSramEccErrorStatus nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts
        nvmlDeviceGetTotalEccErrors nvmlDeviceGetUnrepairableMemoryFlag_v1
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "the device is on another machine than the program, and its neighbours are not the program's",
        """
        nvmlDeviceGetAddressingMode nvmlDeviceGetBridgeChipInfo nvmlDeviceGetC2cModeInfoV
        nvmlDeviceGetCpuAffinity nvmlDeviceGetCpuAffinityWithinScope
        nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetGpuFabricInfo_v4
        nvmlDeviceGetMemoryAffinity nvmlDeviceGetNumaNodeId nvmlDeviceGetNvLinkCapability
        nvmlDeviceGetNvLinkErrorCounter nvmlDeviceGetNvLinkInfo
        nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetNvLinkRemotePciInfo
        nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkState
        nvmlDeviceGetNvLinkUtilizationControl nvmlDeviceGetNvLinkUtilizationCounter
        nvmlDeviceGetNvLinkVersion nvmlDeviceGetNvlinkBwMode
        nvmlDeviceGetNvlinkSupportedBwModes nvmlDeviceGetP2PStatus
        nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetTopologyNearestGpus
        nvmlSystemGetNvlinkBwMode nvmlSystemGetTopologyGpuSet
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "a lease has no MIG instances: a slice is a device of its own",
        """
        nvmlComputeInstanceDestroy nvmlComputeInstanceGetInfo nvmlComputeInstanceGetInfo_v2
        nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement
        nvmlDeviceGetAttributes nvmlDeviceGetAttributes_v2 nvmlDeviceGetComputeInstanceId
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle nvmlDeviceGetGpuInstanceById
        nvmlDeviceGetGpuInstanceId nvmlDeviceGetGpuInstancePossiblePlacements
        nvmlDeviceGetGpuInstancePossiblePlacements_v2 nvmlDeviceGetGpuInstanceProfileInfo
        nvmlDeviceGetGpuInstanceProfileInfoByIdV nvmlDeviceGetGpuInstanceProfileInfoV
        nvmlDeviceGetGpuInstanceRemainingCapacity nvmlDeviceGetGpuInstances
        nvmlDeviceGetMigDeviceHandleByIndex nvmlGpmMigSampleGet
        nvmlGpuInstanceCreateComputeInstance
        nvmlGpuInstanceCreateComputeInstanceWithPlacement nvmlGpuInstanceDestroy
        nvmlGpuInstanceGetComputeInstanceById
        nvmlGpuInstanceGetComputeInstancePossiblePlacements
        nvmlGpuInstanceGetComputeInstanceProfileInfo
        nvmlGpuInstanceGetComputeInstanceProfileInfoV
        nvmlGpuInstanceGetComputeInstanceRemainingCapacity
        nvmlGpuInstanceGetComputeInstances nvmlGpuInstanceGetInfo
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "the node does not serve virtual GPUs of NVIDIA's kind",
        """
        nvmlDeviceGetActiveVgpus nvmlDeviceGetCreatableVgpus
        nvmlDeviceGetGridLicensableFeatures nvmlDeviceGetGridLicensableFeatures_v2
        nvmlDeviceGetGridLicensableFeatures_v3 nvmlDeviceGetGridLicensableFeatures_v4
        nvmlDeviceGetHostVgpuMode nvmlDeviceGetPgpuMetadataString
        nvmlDeviceGetSupportedVgpus nvmlDeviceGetVgpuCapabilities
        nvmlDeviceGetVgpuHeterogeneousMode nvmlDeviceGetVgpuInstancesUtilizationInfo
        nvmlDeviceGetVgpuMetadata nvmlDeviceGetVgpuProcessUtilization
        nvmlDeviceGetVgpuProcessesUtilizationInfo nvmlDeviceGetVgpuSchedulerCapabilities
        nvmlDeviceGetVgpuSchedulerLog nvmlDeviceGetVgpuSchedulerLog_v2
        nvmlDeviceGetVgpuSchedulerState nvmlDeviceGetVgpuSchedulerState_v2
        nvmlDeviceGetVgpuTypeCreatablePlacements nvmlDeviceGetVgpuTypeSupportedPlacements
        nvmlDeviceGetVgpuUtilization nvmlDeviceGetVirtualizationMode
        nvmlDeviceSetVgpuCapabilities nvmlDeviceSetVgpuHeterogeneousMode
        nvmlDeviceSetVgpuSchedulerState nvmlDeviceSetVgpuSchedulerState_v2
        nvmlDeviceSetVirtualizationMode nvmlDeviceVgpuForceGspUnload
        nvmlGetVgpuCompatibility nvmlGetVgpuDriverCapabilities nvmlGetVgpuVersion
        nvmlGpuInstanceGetActiveVgpus nvmlGpuInstanceGetCreatableVgpus
        nvmlGpuInstanceGetVgpuHeterogeneousMode nvmlGpuInstanceGetVgpuSchedulerLog
        nvmlGpuInstanceGetVgpuSchedulerLog_v2 nvmlGpuInstanceGetVgpuSchedulerState
        nvmlGpuInstanceGetVgpuSchedulerState_v2
        nvmlGpuInstanceGetVgpuTypeCreatablePlacements
        nvmlGpuInstanceSetVgpuHeterogeneousMode nvmlGpuInstanceSetVgpuSchedulerState
        nvmlGpuInstanceSetVgpuSchedulerState_v2 nvmlSetVgpuVersion
        nvmlVgpuInstanceClearAccountingPids nvmlVgpuInstanceGetAccountingMode
        nvmlVgpuInstanceGetAccountingPids nvmlVgpuInstanceGetAccountingStats
        nvmlVgpuInstanceGetEccMode nvmlVgpuInstanceGetEncoderCapacity
        nvmlVgpuInstanceGetEncoderSessions nvmlVgpuInstanceGetEncoderStats
        nvmlVgpuInstanceGetFBCSessions nvmlVgpuInstanceGetFBCStats
        nvmlVgpuInstanceGetFbUsage nvmlVgpuInstanceGetFrameRateLimit
        nvmlVgpuInstanceGetGpuInstanceId nvmlVgpuInstanceGetGpuPciId
        nvmlVgpuInstanceGetLicenseInfo nvmlVgpuInstanceGetLicenseInfo_v2
        nvmlVgpuInstanceGetLicenseStatus nvmlVgpuInstanceGetMdevUUID
        nvmlVgpuInstanceGetMetadata nvmlVgpuInstanceGetPlacementId
        nvmlVgpuInstanceGetRuntimeStateSize nvmlVgpuInstanceGetType nvmlVgpuInstanceGetUUID
        nvmlVgpuInstanceGetVmDriverVersion nvmlVgpuInstanceGetVmID
        nvmlVgpuInstanceSetEncoderCapacity nvmlVgpuTypeGetBAR1Info
        nvmlVgpuTypeGetCapabilities nvmlVgpuTypeGetClass nvmlVgpuTypeGetDeviceID
        nvmlVgpuTypeGetFbReservation nvmlVgpuTypeGetFrameRateLimit
        nvmlVgpuTypeGetFramebufferSize nvmlVgpuTypeGetGpuInstanceProfileId
        nvmlVgpuTypeGetGspHeapSize nvmlVgpuTypeGetLicense nvmlVgpuTypeGetMaxInstances
        nvmlVgpuTypeGetMaxInstancesPerGpuInstance nvmlVgpuTypeGetMaxInstancesPerVm
        nvmlVgpuTypeGetName nvmlVgpuTypeGetNumDisplayHeads nvmlVgpuTypeGetResolution
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "events of a device would tell of other leases",
        """
        nvmlDeviceGetSupportedEventTypes nvmlDeviceRegisterEvents nvmlEventSetCreate
        nvmlEventSetFree nvmlEventSetGetContextCount_v1 nvmlEventSetGetContextData_v1
        nvmlEventSetGetContextInfo_v1 nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1
        nvmlEventSetRegisterGpuOperationalEvents_v1 nvmlEventSetWait nvmlEventSetWait_v2
        nvmlEventSetWait_v3 nvmlSystemEventSetCreate nvmlSystemEventSetFree
        nvmlSystemEventSetWait nvmlSystemGetCPER_v1 nvmlSystemRegisterEvents
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "rgpu runs compute alone",
        """
        nvmlDeviceGetDecoderUtilization nvmlDeviceGetEncoderCapacity
        nvmlDeviceGetEncoderSessions nvmlDeviceGetEncoderStats
        nvmlDeviceGetEncoderUtilization nvmlDeviceGetFBCSessions nvmlDeviceGetFBCStats
        nvmlDeviceGetJpgUtilization nvmlDeviceGetOfaUtilization
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "rgpu does not offer confidential computing",
        """
        nvmlDeviceGetConfComputeGpuAttestationReport nvmlDeviceGetConfComputeGpuCertificate
        nvmlDeviceGetConfComputeMemSizeInfo nvmlDeviceGetConfComputeProtectedMemoryUsage
        nvmlSystemGetConfComputeCapabilities nvmlSystemGetConfComputeGpusReadyState
        nvmlSystemGetConfComputeKeyRotationThresholdInfo nvmlSystemGetConfComputeSettings
        nvmlSystemGetConfComputeState
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "the program's machine has no such part",
        """
        nvmlGetExcludedDeviceInfoByIndex nvmlSystemGetHicVersion nvmlUnitGetDevices
        nvmlUnitGetFanSpeedInfo nvmlUnitGetHandleByIndex nvmlUnitGetLedState
        nvmlUnitGetPsuInfo nvmlUnitGetTemperature nvmlUnitGetUnitInfo nvmlUnitSetLedState
    """,
    ),
    Refused(
        "NVML_ERROR_NOT_SUPPORTED",
        "rgpu does not ask the node for it",
        """
        nvmlDeviceGetAPIRestriction nvmlDeviceGetAdaptiveClockInfoStatus
        nvmlDeviceGetAdaptiveTgpModeInfo_v1 nvmlDeviceGetApplicationsClock
        nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetBAR1MemoryInfo
        nvmlDeviceGetCapabilities nvmlDeviceGetClkMonStatus nvmlDeviceGetClockOffsets
        nvmlDeviceGetCoolerInfo nvmlDeviceGetCurrentClockFreqs
        nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetDriverModel
        nvmlDeviceGetDriverModel_v2 nvmlDeviceGetDynamicPstatesInfo
        nvmlDeviceGetFanControlPolicy_v2 nvmlDeviceGetFanSpeedRPM nvmlDeviceGetFanSpeed_v2
        nvmlDeviceGetGpcClkMinMaxVfOffset nvmlDeviceGetGpcClkVfOffset
        nvmlDeviceGetGpuMaxPcieLinkGeneration nvmlDeviceGetGpuOperationMode
        nvmlDeviceGetMarginTemperature nvmlDeviceGetMaxCustomerBoostClock
        nvmlDeviceGetMemClkMinMaxVfOffset nvmlDeviceGetMemClkVfOffset
        nvmlDeviceGetMemoryLimits_v1 nvmlDeviceGetMinMaxClockOfPState
        nvmlDeviceGetMinMaxFanSpeed nvmlDeviceGetNumFans nvmlDeviceGetPciInfo
        nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPcieLinkMaxSpeed nvmlDeviceGetPcieSpeed
        nvmlDeviceGetPerformanceModes nvmlDeviceGetPowerManagementDefaultLimit
        nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetPowerManagementMode
        nvmlDeviceGetPowerMizerMode_v1 nvmlDeviceGetPowerSource
        nvmlDeviceGetSupportedClocksEventReasons nvmlDeviceGetSupportedClocksThrottleReasons
        nvmlDeviceGetSupportedGraphicsClocks nvmlDeviceGetSupportedMemoryClocks
        nvmlDeviceGetSupportedPerformanceStates nvmlDeviceGetTargetFanSpeed
        nvmlDeviceGetThermalSettings nvmlDeviceQueryDrainState
        nvmlDeviceWorkloadPowerProfileGetCurrentProfiles
        nvmlDeviceWorkloadPowerProfileGetProfilesInfo
    """,
    ),
]
