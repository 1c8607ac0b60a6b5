"""What the words of each system mean. Pure; the names and meanings are those of their manuals."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_cluster.core.card import Labels
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.legacy.asked import Asked, user_of
from rgpu_common.clusters import MAX_REQUEST_CARDS
from rgpu_common.units import MAX_BYTES, VMEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

GIB, MIB = 1 << 30, 1 << 20
# A container without a share of time of its own: as little as a claim can say, and idle time.
SHARED = 1
# The priority of containers that come before others for idle time.
FIRST = 1
_PLACED = "rgpu chooses the card"
_MOST_DIGITS, _MOST_COUNT = 20, 10**9


class Options(Struct, frozen=True):
    """How the cluster counted before.

    gpu_mem_bytes: what 1 aliyun.com/gpu-mem is: 1 GiB, or 1 MiB with gpushare's --memory-unit=MiB.
    qgpu_burst: a qGPU container may use idle time beyond its cores (Best Effort and Burst Share);
        False: it may not (Fixed Share). The policy was a label of the node.
    elastic_claims: pods may name ElasticGPUClaims, which the controllers of `rgpu` serve.
    """

    gpu_mem_bytes: int = GIB
    qgpu_burst: bool = True
    elastic_claims: bool = False


class Words(Struct, frozen=True):
    """What a container says; container "": the whole pod. numbers: its resources of one system."""

    container: str
    numbers: Mapping[str, int]
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Returns a resource, 0 if it is not named."""
        return self.numbers.get(name, 0)

    def refuse(self, sentence: str) -> RequestError:
        """Returns the error for this container."""
        return RequestError(f"{user_of(self.container)}: {sentence}")


class System(Struct, frozen=True, eq=False):
    """A system whose words are understood.

    resources: one of them says that a container is this system's, except `weak`: that one says so
    only if the pod has our label, because NVIDIA's device plugin has it too.
    annotation: it says so for the pod, whose containers share the cards. removed: annotations that
    go with it when the pod has its claims. dropped: annotations that mean nothing to rgpu, and why.
    """

    name: str
    resources: tuple[str, ...]
    read: Callable[[Words, Options], Asked]
    weak: str = ""
    annotation: str = ""
    removed: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)

    def used(self, asked: Collection[str], annotated: Collection[str], managed: bool) -> bool:
        """Returns whether a container with these resources uses the system's words."""
        if self.annotation and self.annotation in annotated:
            return True
        found = {name for name in self.resources if name in asked}
        return bool(found - {self.weak}) or (managed and self.weak in found)


def _cards(words: Words, count: int, name: str) -> int:
    if not 1 <= count <= MAX_REQUEST_CARDS:
        raise words.refuse(f"{name} names {count} cards; write 1 to {MAX_REQUEST_CARDS}")
    return count


def _is_number(text: str, most: int) -> bool:
    """Returns whether a text of any length is a whole number of 0 to `most`."""
    return len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal() and int(text) <= most


def _memory(words: Words, count: int, unit: int, name: str) -> int:
    if count * unit > MAX_BYTES:
        raise words.refuse(f"no card has so much of {name}")
    return count * unit


# GPUManager

VCORE, VMEM = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
VLIMIT = "tencent.com/vcuda-core-limit"


def _gpumanager(words: Words, _: Options) -> Asked:
    """100 vcuda-core are a card; 1 vcuda-memory is 256 MiB."""
    core, memory = words.number(VCORE), words.number(VMEM)
    if core >= 100 and core % 100 == 0:
        return Asked(words.container, "GPUManager", _cards(words, core // 100, VCORE), whole=True)
    if core > 100:
        raise words.refuse(
            f"{VCORE} {core} is neither below 100 nor a multiple of 100; write "
            f"{core // 100 * 100} or {core // 100 * 100 + 100}"
        )
    if not core or not memory:
        raise words.refuse(
            f"a part of a card needs both {VCORE} (1 to 99) and {VMEM} (units of 256 MiB)"
        )
    return Asked(
        words.container,
        "GPUManager",
        core=core,
        limit=_vcuda_limit(words, core),
        memory_bytes=_memory(words, memory, VMEM_BYTES, VMEM),
    )


def _vcuda_limit(words: Words, core: int) -> int | None:
    text = words.annotations.get(VLIMIT)
    if text is None:
        return None
    if not _is_number(text, 100) or int(text) < core:
        raise words.refuse(
            f"annotation {VLIMIT} is {text[:20]!r}; write a number from {core}, the container's "
            f"{VCORE}, to 100"
        )
    return int(text)


# gpushare and cGPU

GPU_MEM, GPU_COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
GPU_PERCENT = "aliyun.com/gpu-core.percentage"


def _gpushare(words: Words, options: Options) -> Asked:
    """Memory of a card alone (gpushare), or with a percentage of its time (cGPU)."""
    memory, percent = words.number(GPU_MEM), words.number(GPU_PERCENT)
    cards = _gpu_count(words)
    if percent and cards > 1:
        raise words.refuse(
            f"{GPU_PERCENT} with {GPU_COUNT} {cards} does not say how much of each card is meant; "
            "write a claim with `count`"
        )
    if not memory:
        if percent or not words.number(GPU_COUNT):
            raise words.refuse(f"{GPU_PERCENT} needs {GPU_MEM} beside it")
        return Asked(words.container, "gpushare", cards, whole=True)
    size = _memory(words, memory, options.gpu_mem_bytes, GPU_MEM)
    if memory % cards:
        raise words.refuse(
            f"{GPU_MEM} {memory} cannot be divided among {cards} cards; write a multiple of {cards}"
        )
    if percent > 100:
        raise words.refuse(f"{GPU_PERCENT} is {percent}; write 1 to 100")
    return Asked(
        words.container,
        "cGPU" if percent else "gpushare",
        cards,
        core=percent or SHARED,
        # cGPU holds a container to its percentage. gpushare has no limit of time.
        limit=None if percent else 100,
        memory_bytes=size // cards,
    )


def _gpu_count(words: Words) -> int:
    """Returns the number of cards: a resource of the container, or a label of the pod."""
    text = words.labels.get(GPU_COUNT, "")
    count = words.number(GPU_COUNT)
    if text and not count:
        if not _is_number(text, _MOST_COUNT):
            raise words.refuse(f"label {GPU_COUNT} is {text[:20]!r}; write a number of cards")
        count = int(text)
        return _cards(words, count, GPU_COUNT)
    return _cards(words, count, GPU_COUNT) if GPU_COUNT in words.numbers else 1


# qGPU

_TKE = "tke.cloud.tencent.com"
QCORE, QMEM, QGREEDY = f"{_TKE}/qgpu-core", f"{_TKE}/qgpu-memory", f"{_TKE}/qgpu-core-greedy"
QCLASS = f"{_TKE}/app-class"


def _qgpu(words: Words, options: Options) -> Asked:
    """100 qgpu-core are a card; qgpu-memory counts GiB. Above 100, cards get equal parts."""
    core, memory, greedy = words.number(QCORE), words.number(QMEM), words.number(QGREEDY)
    if core and greedy:
        raise words.refuse(f"{QCORE} and {QGREEDY} exclude each other; keep one of them")
    if core and core % 100 == 0:
        return Asked(words.container, "qGPU", _cards(words, core // 100, QCORE), whole=True)
    if not memory:
        raise words.refuse(f"a part of a card needs {QMEM} (GiB) beside its cores")
    if not core:
        return _qgpu_class(words, memory, greedy)
    cards = _cards(words, -(-core // 100), QCORE)
    if memory < cards:
        raise words.refuse(f"{QMEM} {memory} is less than 1 GiB for each of {cards} cards")
    return Asked(
        words.container,
        "qGPU",
        cards,
        core=core // cards,
        limit=100 if options.qgpu_burst else None,
        memory_bytes=_memory(words, memory // cards, GIB, QMEM),
    )


def _qgpu_class(words: Words, memory: int, greedy: int) -> Asked:
    """Returns what an online or offline container asks for: memory, and idle time."""
    kind = words.annotations.get(QCLASS, "")
    if kind not in ("online", "offline"):
        raise words.refuse(
            f"{QMEM} without {QCORE} is for pods with the annotation {QCLASS}: online or offline; "
            f"write {QCORE}"
        )
    if greedy > 100:
        raise words.refuse(
            f"{QGREEDY} is {greedy}, and an offline pod has one card; write 1 to 100"
        )
    return Asked(
        words.container,
        "qGPU",
        core=SHARED,
        limit=100,
        memory_bytes=_memory(words, memory, GIB, QMEM),
        priority=FIRST if kind == "online" else 0,
    )


# HAMi

NGPU, NMEM = "nvidia.com/gpu", "nvidia.com/gpumem"
NPERCENT, NCORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
NPRIORITY = "nvidia.com/priority"
NTYPE, NNOTYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
NUUID, NNOUUID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"


def _hami(words: Words, _: Options) -> Asked:
    """Each of nvidia.com/gpu cards has gpumem MiB or a percentage of it, and gpucores percent."""
    for name, instead in (
        (NTYPE, "name the model of the pool in the annotation rgpu.dev/model"),
        (NNOTYPE, "name a wanted model in the annotation rgpu.dev/model"),
        (NUUID, "leave it out, because rgpu chooses the card"),
        (NNOUUID, "leave it out, and drain a card that nobody shall use"),
    ):
        if name in words.annotations:
            raise words.refuse(f"rgpu does not know the annotation {name}; {instead}")
    cores, percent, memory = (words.number(name) for name in (NCORES, NPERCENT, NMEM))
    if cores > 100 or percent > 100:
        raise words.refuse(f"{NCORES} and {NPERCENT} are percent of one card; write 0 to 100")
    if memory and percent:
        raise words.refuse(f"{NMEM} and {NPERCENT} exclude each other; keep {NMEM}")
    cards = _cards(words, words.numbers.get(NGPU, 1), NGPU)
    if cores == 100 or not (cores or memory or 0 < percent < 100):
        return Asked(words.container, "HAMi", cards, whole=True, priority=_hami_priority(words))
    return Asked(
        words.container,
        "HAMi",
        cards,
        core=cores or SHARED,
        limit=None if cores else 100,
        memory_bytes=_memory(words, memory, MIB, NMEM),
        memory_percent=percent % 100,
        priority=_hami_priority(words),
    )


def _hami_priority(words: Words) -> int:
    """HAMi counts the other way: 0 comes first."""
    if NPRIORITY not in words.numbers:
        return 0
    said = words.numbers[NPRIORITY]
    if said > 1:
        raise words.refuse(f"{NPRIORITY} is {said}; write 0 for high or 1 for low")
    return FIRST if said == 0 else 0


# KubeShare

KREQUEST, KLIMIT, KMEM = "kubeshare/gpu_request", "kubeshare/gpu_limit", "kubeshare/gpu_mem"
KAFFINITY, KANTI = "kubeshare/sched_affinity", "kubeshare/sched_anti-affinity"
KEXCLUSION, KGPUID = "kubeshare/sched_exclusion", "kubeshare/GPUID"
KUBESHARE = (KREQUEST, KLIMIT, KMEM, KAFFINITY, KANTI, KEXCLUSION)


def _kubeshare(words: Words, _: Options) -> Asked:
    """Fractions of one card in annotations; memory in bytes. Labels say who shares with whom."""
    if KGPUID in words.annotations:
        raise words.refuse(
            f"rgpu chooses the card, so it does not know {KGPUID}; write {KAFFINITY} to share one"
        )
    for name in (KREQUEST, KLIMIT, KMEM):
        if name not in words.annotations:
            raise words.refuse(f"annotation {name} is missing; a share needs it")
    core = _percent(words, KREQUEST)
    limit = _percent(words, KLIMIT)
    if not core <= limit or not limit:
        raise words.refuse(f"{KREQUEST} is above {KLIMIT}, or {KLIMIT} is 0; raise {KLIMIT}")
    memory = words.annotations[KMEM]
    if not _is_number(memory, MAX_BYTES) or not int(memory):
        raise words.refuse(f"annotation {KMEM} is {memory[:20]!r}; write a number of bytes")
    return Asked(
        words.container,
        "KubeShare",
        core=core or SHARED,
        limit=limit,
        memory_bytes=int(memory),
        labels=Labels(_label(words, KAFFINITY), _label(words, KANTI), _label(words, KEXCLUSION)),
    )


def _percent(words: Words, name: str) -> int:
    """Returns a fraction of a card in whole percents."""
    text = words.annotations[name]
    try:
        percent = Decimal(text[:20]) * 100
    except InvalidOperation:
        percent = Decimal(-1)
    if not percent.is_finite() or not 0 <= percent <= 100:
        raise words.refuse(f"annotation {name} is {text[:20]!r}; write 0.0 to 1.0")
    if percent % 1:
        raise words.refuse(
            f"annotation {name} is {text[:20]!r}, and a share is in whole percents; write "
            f"{int(percent) / 100:.2f} or {(int(percent) + 1) / 100:.2f}"
        )
    return int(percent)


def _label(words: Words, name: str) -> str:
    text = words.annotations.get(name, "")
    if len(text) > 63 or not text.isprintable():
        raise words.refuse(f"annotation {name} has at most 63 printable characters")
    return text


# Elastic GPU

ECORE, EMEM = "elasticgpu.com/gpu-core", "elasticgpu.com/gpu-memory"


def _elastic(words: Words, _: Options) -> Asked:
    """100 gpu-core are a card; gpu-memory counts MiB."""
    core, memory = words.number(ECORE), words.number(EMEM)
    if core and core % 100 == 0:
        return Asked(words.container, "Elastic GPU", _cards(words, core // 100, ECORE), whole=True)
    if core > 100 or not memory:
        raise words.refuse(
            f"a part of a card needs {ECORE} of 1 to 99 and {EMEM} (MiB); whole cards are "
            f"multiples of 100 of {ECORE}"
        )
    return Asked(
        words.container,
        "Elastic GPU",
        core=core or SHARED,
        limit=None if core else 100,
        memory_bytes=_memory(words, memory, MIB, EMEM),
    )


_HAMI_DROPPED = dict.fromkeys(
    ("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"),
    f"{_PLACED}, by the weights of the manager",
)
SYSTEMS = (
    System("GPUManager", (VCORE, VMEM), _gpumanager),
    System("gpushare and cGPU", (GPU_MEM, GPU_COUNT, GPU_PERCENT), _gpushare),
    System("qGPU", (QCORE, QMEM, QGREEDY), _qgpu),
    System(
        "HAMi", (NGPU, NMEM, NPERCENT, NCORES, NPRIORITY), _hami, weak=NGPU, dropped=_HAMI_DROPPED
    ),
    System("Elastic GPU", (ECORE, EMEM), _elastic),
    System("KubeShare", (), _kubeshare, annotation=KREQUEST, removed=KUBESHARE),
)
