"""Memory: what each phase leaves and needs on the devices and on the host."""

from windsock.catalogue.declare import Names, difference, differs, link, ours, same, trap
from windsock.catalogue.spec import Metric, Text, Trap

_RANK_MEAN = difference(
    "reducer",
    "Only in debug mode (ROLL_DEBUG=1), and averaged over the ranks that report: the worst rank vanishes. "
    "The device is always 0, since each worker sees one GPU.",
    "仅在调试模式（ROLL_DEBUG=1）下记录，并对上报的 rank 取平均：最糟的 rank 被抹平。每个 worker 只见一块 "
    "GPU，设备号总是 0。",
)
_RANK_MEAN_FRACTION = difference(
    "reducer",
    "Only in debug mode, and averaged over the ranks that report: the worst rank vanishes.",
    "仅在调试模式下记录，并对上报的 rank 取平均：最糟的 rank 被抹平。",
)
_GIB = trap(
    "",
    "Keys that end in _gb are in GiB (2^30 bytes), in every framework that uses them.",
    "以 _gb 结尾的键在所有框架中都是 GiB（2^30 字节）。",
)
_ALLOCATOR = trap(
    "",
    "PyTorch's allocator sees its own blocks only: not the CUDA context, NCCL buffers, or what other "
    "processes on the device hold.",
    "PyTorch 分配器只看得到自己的内存块：不含 CUDA 上下文、NCCL 缓冲，也不含同一设备上其他进程占用的部分。",
)
_PEAKS = trap(
    "roll",
    "Peaks are reset once, on entry: they include the transient of loading the states.",
    "峰值只在进入阶段时重置一次：其中包含加载状态时的瞬时占用。",
)
_LIFETIME = difference(
    "window",
    "The peak since the process began, never reset, so it can only rise. Maximum over ranks.",
    "自进程启动以来的峰值，从不重置，所以只升不降。取各 rank 的最大值。",
)
_FIRST_RANK = difference(
    "window population",
    "The peak since the process began, never reset, and of the first rank only.",
    "自进程启动以来的峰值，从不重置，且只取第一个 rank。",
)


def _device(what: str, en: str, zh: str, about: Text, look: Text, traps: tuple[Trap, ...]) -> Metric:
    return Metric(
        f"memory/{{phase}}/{{moment}}/{what}/{{device}}",
        "memory",
        Text(en, zh),
        about,
        f"torch.cuda.{'max_memory_' + what[4:] if what.startswith('max_') else 'memory_' + what}(device)",
        "GiB",
        "devices",
        "max" if what.startswith("max_") else "last",
        "extrema" if what.startswith("max_") else "last",
        look=look,
        next=Text(
            "The same reading at the other moments of the phase, memory/{phase}/end/onload/max_reserved_frac/{device}.",
            "看该阶段其他时刻的同一读数，以及 memory/{phase}/end/onload/max_reserved_frac/{device}。",
        ),
        direction="lower",
        names=(
            *ours(f"memory/{{phase}}/{{moment}}/{what}/{{device}}", "roll"),
            *differs(f"memory/{{phase}}/{{moment}}/{what}/{{device}}", "roll", by=_RANK_MEAN),
        ),
        traps=traps,
    )


_NOW = Text(
    "After start/onload it is the size of the states; after end/offload close to what it was at "
    "start/offload. What stays behind, step after step, is a leak.",
    "start/onload 时约等于状态大小；end/offload 之后应回到 start/offload 的水平。每步都残留一点，就是泄漏。",
)
_PEAK = Text(
    "Below the device's total with room to spare; compare max_reserved_frac.",
    "低于设备总量并留有余地；对照 max_reserved_frac。",
)

_DEVICES = (
    _device(
        "allocated",
        "Allocated memory",
        "已分配显存",
        Text("Device memory in use by tensors, at one moment of a phase.", "阶段某一时刻被张量占用的显存。"),
        _NOW,
        (_ALLOCATOR,),
    ),
    _device(
        "reserved",
        "Reserved memory",
        "已预留显存",
        Text(
            "Device memory that the allocator holds, used or cached, at one moment of a phase.",
            "阶段某一时刻分配器持有的显存，含已用与缓存。",
        ),
        Text("Close to allocated; a growing gap is fragmentation.", "接近已分配量；差距不断扩大就是碎片。"),
        (_ALLOCATOR,),
    ),
    _device(
        "max_allocated",
        "Peak allocated memory",
        "已分配显存峰值",
        Text("The most memory tensors used since the phase was entered.", "自进入该阶段以来张量占用显存的最大值。"),
        _PEAK,
        (_ALLOCATOR, _PEAKS),
    ),
    _device(
        "max_reserved",
        "Peak reserved memory",
        "已预留显存峰值",
        Text(
            "The most memory the allocator held since the phase was entered: what decides whether it fits.",
            "自进入该阶段以来分配器持有显存的最大值：能否放得下取决于它。",
        ),
        _PEAK,
        (_ALLOCATOR, _PEAKS),
    ),
)


def _fraction(what: str, en: str, zh: str, about: Text, look: Text) -> Metric:
    pattern = f"memory/{{phase}}/end/onload/{what}_frac/{{device}}"
    return Metric(
        pattern,
        "memory",
        Text(en, zh),
        about,
        f"{what} at end/onload / total memory of the device",
        "fraction",
        "devices",
        "max",
        "extrema",
        look=look,
        next=Text(
            "max_reserved against max_allocated (the gap is cached or fragmented), the micro-batch size, "
            "tokens/response_length/max.",
            "对照 max_reserved 与 max_allocated（差额是缓存或碎片），再看微批次大小与 tokens/response_length/max。",
        ),
        direction="lower",
        names=(*ours(pattern, "roll"), *differs(pattern, "roll", by=_RANK_MEAN_FRACTION)),
        traps=(_ALLOCATOR, _PEAKS),
    )


def _host(what: str, en: str, zh: str, about: Text) -> Metric:
    return Metric(
        f"memory/cpu/{{phase}}/{{when}}/{what}",
        "memory",
        Text(en, zh),
        about,
        f"{what} of the process at that moment",
        "GiB",
        "processes",
        "last",
        "last",
        look=Text(
            "Flat over steps, apart from a jump in the first few. A steady climb is a leak: project when "
            "the host is full.",
            "除最初几步外应保持平坦。持续爬升就是泄漏：可推算主机何时耗尽。",
        ),
        next=Text(
            "memory/host/used: is it this process or another one? Object stores, pinned buffers, data loaders.",
            "看 memory/host/used：是本进程还是别的进程？再查对象存储、锁页缓冲与数据加载器。",
        ),
        direction="lower",
        names=(
            *ours(f"memory/cpu/{{phase}}/{{when}}/{what}", "roll"),
            *differs(
                f"memory/cpu/{{phase}}/{{when}}/{what}",
                "roll",
                by=difference(
                    "reducer moment",
                    "Only in debug mode, averaged over ranks; the start reading is taken after the states are loaded.",
                    "仅在调试模式下记录，对 rank 取平均；start 的读数其实在状态加载之后。",
                ),
            ),
        ),
        traps=(
            trap(
                "roll",
                "This process alone: inference engines in child processes are invisible.",
                "只统计本进程：子进程里的推理引擎看不到。",
            ),
        ),
        links=(
            link("memory/host/used", "A process's memory is not the host's.", "单个进程的内存不是整台主机的内存。"),
        ),
    )


def _step(what: str, en: str, zh: str, about: Text, key: str, extra: Names) -> Metric:
    return Metric(
        f"memory/step/{what}",
        "memory",
        Text(en, zh),
        about,
        "max over ranks of the peak since the step began",
        "GiB",
        "ranks",
        "max",
        "extrema",
        look=Text(
            "Steady below the device's total; it moves with the longest sequences.",
            "平稳且低于设备总量；随最长序列起伏。",
        ),
        next=Text(
            "memory/{phase}/*: which phase needs it? tokens/response_length/max.",
            "看 memory/{phase}/*：是哪个阶段需要这么多？再看 tokens/response_length/max。",
        ),
        direction="lower",
        names=(
            *ours(f"perf/{key}", "trinity"),
            *differs(f"perf/{key}", "trinity", by=_LIFETIME),
            *differs(f"perf/{key}", "verl", by=_LIFETIME, era="legacy"),
            *differs(f"actor/perf/{key}", "verl", by=_FIRST_RANK, era="engine"),
            *extra,
        ),
        traps=(
            trap(
                "verl",
                "The worker's keys get the prefix actor/ in the engine path while the documentation still "
                "says perf/…: two names, one number.",
                "engine 路径会给 worker 的键加上 actor/ 前缀，而文档仍写 perf/…：两个名字，同一个数。",
            ),
            trap(
                "verl",
                "A flat line says nothing: a lifetime peak never falls. A rise dates the step that needed more.",
                "平线说明不了什么：全程峰值从不下降；它上升的那一步才是需要更多显存的时刻。",
            ),
            _GIB,
            _ALLOCATOR,
        ),
    )


METRICS: tuple[Metric, ...] = (
    *_DEVICES,
    _fraction(
        "max_allocated",
        "Peak allocated share",
        "已分配显存峰值占比",
        Text(
            "The most memory tensors used since the phase was entered, as a share of the device's total; "
            "read after the work, before the states are offloaded.",
            "自进入该阶段以来张量占用显存的最大值占设备总量的比例；在工作完成、状态卸载之前读取。",
        ),
        Text(
            "Below about 0.9; it understates what is needed, since cached blocks are not in it.",
            "约 0.9 以下；缓存块不在其中，所以它低估了实际需求。",
        ),
    ),
    _fraction(
        "max_reserved",
        "Peak reserved share",
        "已预留显存峰值占比",
        Text(
            "The most memory the allocator held since the phase was entered, as a share of the device's "
            "total; read after the work, before the states are offloaded.",
            "自进入该阶段以来分配器持有显存的最大值占设备总量的比例；在工作完成、状态卸载之前读取。",
        ),
        Text(
            "Below about 0.95 on every rank: the next longer batch must still fit.",
            "每个 rank 都在 0.95 左右以下：要给下一个更长的批次留余地。",
        ),
    ),
    Metric(
        "memory/{phase}/end/onload/work_peak/{device}",
        "memory",
        Text("Peak of the work", "工作段显存峰值"),
        Text(
            "The most memory tensors used during the work alone: the peak counter is reset after the "
            "states are loaded.",
            "仅工作段内张量占用显存的最大值：在状态加载完成后重置峰值计数。",
        ),
        "torch.cuda.max_memory_allocated(device) since the states were loaded",
        "GiB",
        "devices",
        "max",
        "extrema",
        look=_PEAK,
        next=Text(
            "memory/{phase}/end/onload/max_allocated/{device}, which includes the transient of loading.",
            "对照含加载瞬时占用的 memory/{phase}/end/onload/max_allocated/{device}。",
        ),
        direction="lower",
        names=ours("memory/{phase}/end/onload/work_peak/{device}", "roll"),
        traps=(_ALLOCATOR,),
    ),
    _host(
        "rss",
        "Resident host memory",
        "进程常驻内存",
        Text(
            "Host memory of this process that is in RAM, at the start or the end of a phase.",
            "本进程驻留在内存中的大小，取阶段开始或结束时。",
        ),
    ),
    _host(
        "vms",
        "Virtual host memory",
        "进程虚拟内存",
        Text(
            "Address space of this process, at the start or the end of a phase; far larger than what it uses.",
            "本进程的虚拟地址空间大小，取阶段开始或结束时；远大于实际占用。",
        ),
    ),
    _step(
        "max_allocated",
        "Peak allocated memory of the step",
        "本步已分配显存峰值",
        Text(
            "The most device memory that tensors used in the step, on the rank that used most.",
            "本步内张量占用显存的最大值，取占用最多的 rank。",
        ),
        "max_memory_allocated_gb",
        differs(
            "system/max_memory_allocated",
            "roll",
            by=difference(
                "window",
                "With FSDP2 only; the peak since the last reset, maximum over ranks.",
                "仅 FSDP2 有；自上次重置以来的峰值，取各 rank 最大。",
            ),
        ),
    ),
    _step(
        "max_reserved",
        "Peak reserved memory of the step",
        "本步已预留显存峰值",
        Text(
            "The most device memory that the allocator held in the step, on the rank that held most.",
            "本步内分配器持有显存的最大值，取持有最多的 rank。",
        ),
        "max_memory_reserved_gb",
        (
            *differs(
                "system/max_memory_reserved",
                "roll",
                by=difference(
                    "window",
                    "With FSDP2 only; the peak since the last reset, maximum over ranks.",
                    "仅 FSDP2 有；自上次重置以来的峰值，取各 rank 最大。",
                ),
            ),
            *same("perf/peak_memory", "prime-rl"),
        ),
    ),
    Metric(
        "memory/host/used",
        "memory",
        Text("Host memory in use", "主机内存用量"),
        Text("Memory in use on the whole host, by all processes.", "整台主机上所有进程占用的内存。"),
        "total − available memory of the host",
        "GiB",
        "hosts",
        "max",
        "extrema",
        look=Text(
            "Flat after the first steps; a steady climb ends in the kernel's out-of-memory killer.",
            "前几步之后应平坦；持续爬升最终会触发内核 OOM。",
        ),
        next=Text(
            "memory/cpu/{phase}/{when}/rss of each process, the object store, checkpoints in flight.",
            "看各进程的 memory/cpu/{phase}/{when}/rss、对象存储与正在写的检查点。",
        ),
        direction="lower",
        names=(
            *ours("perf/cpu_memory_used_gb", "trinity"),
            *same("perf/cpu_memory_used_gb", "trinity"),
            *same("perf/cpu_memory_used_gb", "verl", era="legacy"),
            *same("actor/perf/cpu_memory_used_gb", "verl", era="engine"),
        ),
        links=(
            link(
                "memory/cpu/{phase}/{when}/rss",
                "The host's memory is not one process's.",
                "整台主机的内存不是单个进程的内存。",
                phase="train_step",
                when="end",
            ),
        ),
    ),
)
