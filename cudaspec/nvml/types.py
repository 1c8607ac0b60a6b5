"""Types of nvml.h that functions with an answer use.  Data only."""

from cudaspec.model import Alias, Constant, Handle, Struct, Type

# Any integer is a legal value of an enumeration, because arguments come from programs.
_NUMBERS = (
    "nvmlBrandType_t nvmlBusType_t nvmlClockId_t nvmlClockType_t nvmlComputeMode_t "
    "nvmlDeviceArchitecture_t nvmlEnableState_t nvmlPstates_t nvmlTemperatureSensors_t "
    "nvmlTemperatureThresholds_t nvmlValueType_t"
)
TYPES: list[Type] = [
    Handle("nvmlDevice_t", "nvmlDevice_st"),
    *(Alias(name, "unsigned int") for name in _NUMBERS.split()),
    Struct(
        "nvmlMemory_t",
        "nvmlMemory_st",
        (
            "unsigned long long total",
            "unsigned long long free",
            "unsigned long long used",
        ),
    ),
    Struct(
        "nvmlMemory_v2_t",
        "nvmlMemory_v2_st",
        (
            "unsigned int version",
            "unsigned long long total",
            "unsigned long long reserved",
            "unsigned long long free",
            "unsigned long long used",
        ),
    ),
    Struct("nvmlUtilization_t", "nvmlUtilization_st", ("unsigned int gpu", "unsigned int memory")),
    Struct(
        "nvmlPciInfo_t",
        "nvmlPciInfo_st",
        (
            "char busIdLegacy[16]",
            "unsigned int domain",
            "unsigned int bus",
            "unsigned int device",
            "unsigned int pciDeviceId",
            "unsigned int pciSubSystemId",
            "char busId[32]",
        ),
    ),
    Struct(
        "nvmlPciInfoExt_t",
        "nvmlPciInfoExt_st",
        (
            "unsigned int version",
            "unsigned int domain",
            "unsigned int bus",
            "unsigned int device",
            "unsigned int pciDeviceId",
            "unsigned int pciSubSystemId",
            "unsigned int baseClass",
            "unsigned int subClass",
            "char busId[32]",
        ),
    ),
    Struct(
        "nvmlProcessInfo_v1_t",
        "nvmlProcessInfo_v1_st",
        (
            "unsigned int pid",
            "unsigned long long usedGpuMemory",
        ),
    ),
    Struct(
        "nvmlProcessInfo_t",
        "nvmlProcessInfo_st",
        (
            "unsigned int pid",
            "unsigned long long usedGpuMemory",
            "unsigned int gpuInstanceId",
            "unsigned int computeInstanceId",
        ),
    ),
    Struct(
        "nvmlProcessDetail_v1_t",
        "nvmlProcessDetail_v1_st",
        (
            "unsigned int pid",
            "unsigned long long usedGpuMemory",
            "unsigned int gpuInstanceId",
            "unsigned int computeInstanceId",
            "unsigned long long usedGpuCcProtectedMemory",
        ),
    ),
    Struct(
        "nvmlProcessDetailList_t",
        "nvmlProcessDetailList_st",
        (
            "unsigned int version",
            "unsigned int mode",
            "unsigned int numProcArrayEntries",
            "nvmlProcessDetail_v1_t *procArray",
        ),
    ),
    Struct(
        "nvmlProcessUtilizationSample_t",
        "nvmlProcessUtilizationSample_st",
        (
            "unsigned int pid",
            "unsigned long long timeStamp",
            "unsigned int smUtil",
            "unsigned int memUtil",
            "unsigned int encUtil",
            "unsigned int decUtil",
        ),
    ),
    Struct(
        "nvmlProcessUtilizationInfo_v1_t",
        "nvmlProcessUtilizationInfo_v1_st",
        (
            "unsigned long long timeStamp",
            "unsigned int pid",
            "unsigned int smUtil",
            "unsigned int memUtil",
            "unsigned int encUtil",
            "unsigned int decUtil",
            "unsigned int jpgUtil",
            "unsigned int ofaUtil",
        ),
    ),
    Struct(
        "nvmlProcessesUtilizationInfo_t",
        "nvmlProcessesUtilizationInfo_st",
        (
            "unsigned int version",
            "unsigned int processSamplesCount",
            "unsigned long long lastSeenTimeStamp",
            "nvmlProcessUtilizationInfo_v1_t *procUtilArray",
        ),
    ),
    Struct(
        "nvmlTemperature_t",
        "nvmlTemperature_st",
        (
            "unsigned int version",
            "nvmlTemperatureSensors_t sensorType",
            "int temperature",
        ),
    ),
    Struct(
        "nvmlUUID_t",
        "nvmlUUID_st",
        (
            "unsigned int version",
            "unsigned int type",
            "union { char str[41]; unsigned char bytes[16]; } value",
        ),
    ),
    Struct(
        "nvmlValue_t",
        "nvmlValue_un",
        (
            "double dVal",
            "int siVal",
            "unsigned int uiVal",
            "unsigned long ulVal",
            "unsigned long long ullVal",
            "signed long long sllVal",
            "unsigned short usVal",
        ),
        union=True,
    ),
    Struct(
        "nvmlFieldValue_t",
        "nvmlFieldValue_st",
        (
            "unsigned int fieldId",
            "unsigned int scopeId",
            "long long timestamp",
            "long long latencyUsec",
            "nvmlValueType_t valueType",
            "nvmlReturn_t nvmlReturn",
            "nvmlValue_t value",
        ),
    ),
]
CONSTANTS = [
    Constant("NVML_BRAND_UNKNOWN", "0"),
    Constant("NVML_BUS_TYPE_PCIE", "2"),
    Constant("NVML_CLOCK_GRAPHICS", "0"),
    Constant("NVML_CLOCK_SM", "1"),
    Constant("NVML_CLOCK_MEM", "2"),
    Constant("NVML_CLOCK_VIDEO", "3"),
    Constant("NVML_CLOCK_ID_CURRENT", "0"),
    Constant("NVML_COMPUTEMODE_DEFAULT", "0"),
    Constant("NVML_DEVICE_MIG_DISABLE", "0"),
    Constant("NVML_FEATURE_DISABLED", "0"),
    Constant("NVML_INIT_FLAG_NO_GPUS", "1"),
    Constant("NVML_INIT_FLAG_NO_ATTACH", "2"),
    Constant("NVML_TEMPERATURE_GPU", "0"),
    Constant("NVML_TEMPERATURE_THRESHOLD_SHUTDOWN", "0"),
    Constant("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", "1"),
    Constant("NVML_UUID_TYPE_ASCII", "1"),
    Constant("NVML_UUID_TYPE_BINARY", "2"),
]
