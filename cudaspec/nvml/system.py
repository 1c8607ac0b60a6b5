"""The library, the node and how devices are found.  Data only."""

from cudaspec.nvml_model import Function, Needs

_COUNT = "the devices of the program, as RGPU_DEVICE has them; one without it"
_INDEX = "the device in this place of RGPU_DEVICE"
_PCI = "the device with this address"
FUNCTIONS = [
    Function(
        "nvmlReturn_t nvmlInit_v2(void)",
        Needs.NOTHING,
        "asks the servers for their devices; NVML_ERROR_DRIVER_NOT_LOADED if none answers",
    ),
    Function("nvmlReturn_t nvmlInit(void)", Needs.NOTHING, "as nvmlInit_v2", body="nvmlInit_v2"),
    Function(
        "nvmlReturn_t nvmlInitWithFlags(unsigned int flags)",
        Needs.NOTHING,
        "as nvmlInit_v2; with NO_GPUS or NO_ATTACH it succeeds without a device, too",
    ),
    Function("nvmlReturn_t nvmlShutdown(void)", Needs.LIBRARY, "undoes one nvmlInit"),
    Function(
        "nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)",
        Needs.DEVICES,
        "the release of the node's driver; `rgpu RELEASE` with an emulated device",
    ),
    Function(
        "nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)",
        Needs.LIBRARY,
        "the version of this interface and the release of rgpu: `13.0.1.0`",
    ),
    Function(
        "nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)",
        Needs.DEVICES,
        "what cuDriverGetVersion returns",
    ),
    Function(
        "nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)",
        Needs.DEVICES,
        "what cuDriverGetVersion returns",
        body="nvmlSystemGetCudaDriverVersion",
    ),
    Function(
        "nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)",
        Needs.DEVICES,
        "the program of a process with a session in the lease; else NVML_ERROR_NOT_FOUND",
    ),
    Function("nvmlReturn_t nvmlUnitGetCount(unsigned int *unitCount)", Needs.LIBRARY, "0"),
    Function(
        "nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *deviceCount)", Needs.LIBRARY, "0"
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)", Needs.DEVICES, _COUNT
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)",
        Needs.DEVICES,
        _COUNT,
        body="nvmlDeviceGetCount_v2",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)",
        Needs.DEVICES,
        _INDEX,
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)",
        Needs.DEVICES,
        _INDEX,
        body="nvmlDeviceGetHandleByIndex_v2",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)",
        Needs.DEVICES,
        "the device with this UUID",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)",
        Needs.DEVICES,
        "the device with this UUID, as text or as 16 bytes",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)",
        Needs.DEVICES,
        _PCI,
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)",
        Needs.DEVICES,
        _PCI,
        body="nvmlDeviceGetHandleByPciBusId_v2",
    ),
]
