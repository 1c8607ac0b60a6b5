"""Processes: those with a session in the lease, and no others.  Data only."""

from cudaspec.nvml_model import Function, Needs

_LIST = "the processes of the lease, with the memory that each holds"
_NONE = "no process: rgpu runs compute alone"
_SMALL = ("infos",)


def _lists(kind: str, answers: str) -> list[Function]:
    newest = f"nvmlDeviceGet{kind}RunningProcesses_v3"
    return [
        Function(
            f"nvmlReturn_t {newest}(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)",
            Needs.NOW,
            answers,
            nullable=_SMALL,
        ),
        Function(
            f"nvmlReturn_t nvmlDeviceGet{kind}RunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)",
            Needs.NOW,
            answers,
            nullable=_SMALL,
            body=newest,
        ),
        Function(
            f"nvmlReturn_t nvmlDeviceGet{kind}RunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)",
            Needs.NOW,
            f"{answers}; without MIG instances",
            nullable=_SMALL,
        ),
    ]


FUNCTIONS = [
    *_lists("Compute", _LIST),
    *_lists("Graphics", _NONE),
    *_lists("MPSCompute", _NONE),
    Function(
        "nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)",
        Needs.NOW,
        f"mode 0: {_LIST}; other modes: no process",
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization, unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)",
        Needs.NOW,
        "smUtil: the part of the time between answers of the server, about a second apart, in which the process had the device",
        nullable=("utilization",),
    ),
    Function(
        "nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)",
        Needs.NOW,
        "the same",
    ),
]
