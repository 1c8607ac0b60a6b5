"""What a device is, what the lease has and uses of it, and readings of the node.  Data only."""

from cudaspec.nvml_model import Function, Needs

_MEMORY = "total: the memory limit of the lease; used: what its programs hold; free: the rest"
_CLOCK = "of the four kinds of clocks; a reading of the node"
FUNCTIONS = [
    # What it is.
    Function(
        "nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)",
        Needs.KNOWN,
        "the name",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)",
        Needs.KNOWN,
        "the UUID",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)",
        Needs.KNOWN,
        "its place in RGPU_DEVICE",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)",
        Needs.KNOWN,
        "NVML_BRAND_UNKNOWN",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)",
        Needs.KNOWN,
        "follows from the compute capability",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)",
        Needs.KNOWN,
        "the compute capability",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)",
        Needs.KNOWN,
        "the address that cuDeviceGetPCIBusId gives, which is not the true one; the ids of the model are 0",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)",
        Needs.KNOWN,
        "the same; the class is that of a 3D controller",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type)",
        Needs.KNOWN,
        "NVML_BUS_TYPE_PCIE",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)",
        Needs.KNOWN,
        "disabled: a MIG slice is a device of its own, and its name has its profile",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)",
        Needs.KNOWN,
        "0",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)",
        Needs.KNOWN,
        "0",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)",
        Needs.KNOWN,
        "NVML_COMPUTEMODE_DEFAULT: any number of the lease's processes may use it",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display)",
        Needs.KNOWN,
        "disabled",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *isActive)",
        Needs.KNOWN,
        "disabled",
    ),
    # What the lease has and uses.
    Function(
        "nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)",
        Needs.NOW,
        _MEMORY,
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)",
        Needs.NOW,
        f"{_MEMORY}; reserved: 0",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)",
        Needs.NOW,
        "gpu: the part of the last second in which the lease had the device; memory: 0, which is not measured",
    ),
    # What the node's management library says.
    Function(
        "nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)",
        Needs.NOW,
        "of the GPU; a reading of the node",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)",
        Needs.NOW,
        "of the GPU; a reading of the node",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t thresholdType, unsigned int *temp)",
        Needs.NOW,
        "of shutdown and of slowdown; a reading of the node",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)",
        Needs.NOW,
        "of the whole device; a reading of the node",
        reading="POWER_MW",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)",
        Needs.NOW,
        "a reading of the node",
        reading="POWER_LIMIT_MW",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit)",
        Needs.NOW,
        "a reading of the node",
        reading="POWER_LIMIT_MW",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)",
        Needs.NOW,
        "a reading of the node",
        reading="FAN_PERCENT",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)",
        Needs.NOW,
        "a reading of the node",
        reading="PERFORMANCE_STATE",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pState)",
        Needs.NOW,
        "a reading of the node",
        reading="PERFORMANCE_STATE",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)",
        Needs.NOW,
        _CLOCK,
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)",
        Needs.NOW,
        f"the most {_CLOCK}",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId, unsigned int *clockMHz)",
        Needs.NOW,
        f"the present one {_CLOCK}",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *clocksEventReasons)",
        Needs.NOW,
        "a reading of the node",
        reading="CLOCK_REASONS",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *clocksThrottleReasons)",
        Needs.NOW,
        "a reading of the node",
        reading="CLOCK_REASONS",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)",
        Needs.NOW,
        "a reading of the node",
        reading="PERSISTENCE",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)",
        Needs.NOW,
        "a reading of the node, as both values",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *currLinkGen)",
        Needs.NOW,
        "on the node; a reading",
        reading="PCIE_GENERATION",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *currLinkWidth)",
        Needs.NOW,
        "on the node; a reading",
        reading="PCIE_WIDTH",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGen)",
        Needs.NOW,
        "on the node; a reading",
        reading="MOST_PCIE_GENERATION",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *maxLinkWidth)",
        Needs.NOW,
        "on the node; a reading",
        reading="MOST_PCIE_WIDTH",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *numCores)",
        Needs.NOW,
        "a reading of the node",
        reading="CORES",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *busWidth)",
        Needs.NOW,
        "a reading of the node",
        reading="MEMORY_BUS_BITS",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)",
        Needs.NOW,
        "each field has its own result, NVML_ERROR_NOT_SUPPORTED, but for the power: fields 185 and 186 are a reading",
    ),
]
