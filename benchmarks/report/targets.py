"""What was promised: floor and target of every comparison, as rows with the numbers of the workloads. A ratio is the
peer's time divided by ours in the same round of the same processes."""
import dataclasses

KB, MB = 1 << 10, 1 << 20


@dataclasses.dataclass
class Check:
    row: str  # number in the list of targets
    workload: str  # the workload's name for readers
    match: dict  # fields of the records
    peer: str  # the contender that we are compared with
    peer_name: str
    floor: float | None
    target: float | None  # None: the row is printed for comparison only
    ours: str = "ours"
    note: str = ""
    best_of_peer: bool = False  # the peer's best round counts, because its times vary much
    exchanged: int = 0  # bytes that each of two ranks has to hand to the other
    reason: str = ""  # another reason why a target is missed


def size_name(size):
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB" if size >= KB else f"{size} B"


CROWDED = "where ranks share cores they take turns, and the scheduler says when"
BEYOND_CACHE = ("the message does not fit a core's second-level cache, so our other passes over it run at the speed of "
                "what lies behind")
ONE_COPY = "the peer reads the other's memory in one copy, ours writes what both share and reads it from there"
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}


def _data_plane(row, workload, dtype, ranks, size, peer, floor, target, **more):
    variant = more.pop("variant", "default")
    name = {"float32": "", "float16": " float16", "bfloat16": " bfloat16", "uint8": ""}[dtype]
    match = {"program": "data_plane", "workload": workload, "dtype": dtype, "ranks": ranks, "bytes": size, "peer": peer,
             "variant": variant}
    tuned = ", malloc tuned" if variant == "malloc_tuned" else ""
    yields = ", yielding" if ranks > 2 and peer == "openmpi" else ""
    if ranks > 2:
        more.setdefault("reason", CROWDED)
    elif workload == "allreduce" and size >= 4 * MB:
        more.setdefault("reason", BEYOND_CACHE)
    elif workload != "allreduce" and size >= MB:
        more.setdefault("reason", ONE_COPY)
    return Check(row, f"{workload}{name} {size_name(size)}, {ranks} ranks", match, more.pop("contender", "mpi"),
                 NAMES[peer] + tuned + yields + more.pop("peer_note", ""), floor, target,
                 exchanged=size if ranks == 2 and workload != "broadcast" else 0, **more)


def data_plane_checks():
    for size in (8, 64, 512):
        yield _data_plane("1", "allreduce", "float32", 2, size, "openmpi", 2.0, 2.5 if size == 64 else 3.0)
        yield _data_plane("1", "allreduce", "float32", 2, size, "mpich", 4, 5)
    for size in (4 * KB, 16 * KB):
        yield _data_plane("2", "allreduce", "float32", 2, size, "openmpi", 2.0, 2.7)
        yield _data_plane("2", "allreduce", "float32", 2, size, "mpich", 1.8, 2.3)
    for size in (8, 64, 512, 4 * KB, 16 * KB):
        yield _data_plane("3", "allreduce", "float32", 4, size, "openmpi", 1.5, 1.9 if size <= 64 else 3.5)
        yield _data_plane("3", "allreduce", "float32", 4, size, "mpich", None, None,
                          note="MPICH spins and never yields: with more ranks than cores its time says nothing")
    for size in (64 * KB, 256 * KB, MB, 4 * MB, 16 * MB):
        yield _data_plane("4", "allreduce", "float32", 2, size, "openmpi", 1.05, 1.4)
        yield _data_plane("4", "allreduce", "float32", 2, size, "mpich", 1.6, 2.0)
    for peer in ("openmpi", "mpich"):
        yield _data_plane("5", "allreduce", "float32", 2, 64 * MB, peer, 2.2, 3.0)
        yield _data_plane("5", "allreduce", "float32", 2, 64 * MB, peer, 1.3, 1.6, variant="malloc_tuned")
    yield from gloo_checks()
    for size in (64 * KB, MB, 16 * MB, 64 * MB):
        large = size == 64 * MB
        yield _data_plane("14", "allreduce", "float16", 2, size, "mpich", 1.8, 4.5 if large else 2.3,
                          peer_note=" + F16C op")
        yield _data_plane("14", "allreduce", "float16", 2, size, "openmpi", 1.3, 2.8 if large else 1.6,
                          peer_note=" + F16C op")
    for size in (64 * KB, MB, 16 * MB, 64 * MB):
        for peer, floor, target in (("mpich", 5, 7), ("openmpi", 3, 4.5)):
            yield _data_plane("15", "allreduce", "bfloat16", 2, size, peer, floor, target, peer_note=" + scalar op")
            yield _data_plane("15", "allreduce", "bfloat16", 2, size, peer, None, None, contender="mpi_compiled",
                              peer_note=" + compiled op", note="the peer's loop vectorised by the compiler")
    for size in (MB, 16 * MB, 64 * MB):
        for peer in ("openmpi", "mpich"):
            yield _data_plane("16", "broadcast", "uint8", 2, size, peer, 1.2, 1.4, note="judged by the better peer")
        yield _data_plane("16", "broadcast", "uint8", 4, size, "openmpi", 1.8, 2.5)
    for size in (8, 512, 4 * KB):
        yield _data_plane("17", "broadcast", "uint8", 2, size, "openmpi", 1.0, 1.3)
    for size in (8, 512, 4 * KB, 64 * KB):
        yield _data_plane("18", "allgather", "uint8", 2, size, "openmpi", 1.2, 2.2 if size in (512, 4 * KB) else 1.4)
    for size in (MB, 16 * MB, 64 * MB):
        yield _data_plane("18", "allgather", "uint8", 2, size, "openmpi", 0.95, 1.05)
    for size in (16 * MB, 64 * MB):
        yield _data_plane("18", "allgather", "uint8", 4, size, "openmpi", 1.2, 1.45)
    for size in (64 * KB, MB, 16 * MB, 64 * MB):
        for peer, target in (("openmpi", 1.4), ("mpich", 2.0)):
            yield _data_plane("19", "reducescatter", "float32", 2, size, peer, 1.0, target)
        for peer in ("openmpi", "mpich"):
            yield _data_plane("20", "alltoall", "uint8", 2, size, peer, 1.0, 1.2)
    for size in (64 * KB, MB, 16 * MB):
        yield _data_plane("19", "reducescatter", "float32", 4, size, "openmpi", 1.0, 1.4)
        yield _data_plane("20", "alltoall", "uint8", 4, size, "openmpi", 1.0, 1.5)


def gloo_checks():
    for size, floor, target in ((8, 3, 250), (512, 3, 250), (MB, 3, 8), (64 * MB, 3, 3.8)):
        match = {"program": "python", "workload": "allreduce", "ranks": 2, "bytes": size}
        yield Check("6", f"allreduce {size_name(size)}, 2 ranks", match, "gloo", "Gloo (torch), best round", floor,
                    target, best_of_peer=True, note="ours: data plane" + (", looped in C" if size <= 512 else ""),
                    ours="ours_loop" if size <= 512 else "ours")


STAND_IN = "target was written for upstream Horovod; judged against the stand-in"


def _library(row, name, workload, ranks, peer, floor, target, **more):
    variant = more.pop("variant", "default")
    match = {"program": "whole_library", "workload": workload, "ranks": ranks, "peer": peer, "variant": variant}
    if ranks > 2:
        more.setdefault("reason", CROWDED)
    return Check(row, f"{name}, {ranks} ranks", match, more.pop("contender", "packed_mpi"),
                 more.pop("peer_name", f"pack + {NAMES[peer]} + scale + unpack"), floor, target, **more)


def library_checks():
    for peer in ("openmpi", "mpich"):
        for ours, way in (("ours", "started one by one"), ("ours_together", "started together")):
            yield _library("7", f"64 MB in 200 tensors, {way}", "step_64MB", 2, peer, 4, 5, ours=ours, note=STAND_IN,
                           exchanged=64 * MB, reason=BEYOND_CACHE)
        for ours, way in (("ours", "started one by one"), ("ours_together", "started together")):
            yield _library("8", f"8 MB in 200 tensors, {way}", "step_8MB", 2, peer, 3, 4, ours=ours, note=STAND_IN,
                           exchanged=8 * MB, reason=BEYOND_CACHE)
            yield _library("8", f"1 MB in 200 tensors, {way}", "step_1MB", 2, peer, 4, 6, ours=ours, note=STAND_IN,
                           exchanged=MB, reason="1 MB fits the second-level cache, so packing costs the peer little, "
                                                "and we have to agree on 200 operations and settle them besides")
        for name, size in (("64 MB", "fused_64MB"), ("8 MB", "fused_8MB"), ("1 MB", "fused_1MB")):
            match = {"program": "data_plane", "workload": size, "ranks": 2, "peer": peer, "variant": "default"}
            yield Check("7" if size == "fused_64MB" else "8", f"{name} in 200 tensors, data plane alone, 2 ranks",
                        match, "packed_mpi", f"pack + {NAMES[peer]} + scale + unpack", None, None)
        match = {"program": "data_plane", "workload": "fused_64MB", "ranks": 2, "peer": peer, "variant": "malloc_tuned"}
        yield Check("7", "64 MB in 200 tensors, data plane alone, 2 ranks", match, "packed_mpi",
                    f"pack + {NAMES[peer]}, malloc tuned + scale + unpack", None, None)
    yield _library("9", "64 MB in 200 tensors", "step_64MB", 4, "openmpi", 3, 4, note=STAND_IN)
    cycles = "a stand-in for upstream's thread that wakes once a cycle"
    no_cycle = "not judged: the stand-in that never sleeps loses whole ticks of the scheduler on shared cores"
    for peer in ("openmpi", "mpich"):
        for contender, name, together, one_by_one in (("cycle_1ms", "1 ms", (8, 25), (8, 12)),
                                                      ("cycle_0", "0", (None, None), (None, None))):
            for ours, (floor, target), way in (("ours_together", together, "together"),
                                               ("ours", one_by_one, "one by one")):
                yield _library("10", f"200 tensors of 256 B, {way}", "tiny_200", 2, peer, floor, target, ours=ours,
                               contender=contender, variant="cycles", peer_name=f"{NAMES[peer]}, cycle {name}",
                               note=cycles if floor else no_cycle)
        yield _library("10", "200 tensors of 256 B, together", "tiny_200", 2, peer, None, None, ours="ours_together",
                       note="no agreement, no thread on the peer's side")
        for contender, name, floor, target in (("cycle_1ms", "1 ms", 25, 50), ("cycle_0", "0", None, None)):
            yield _library("11", "1 tensor of 8 B", "one_8B", 2, peer, floor, target, contender=contender,
                           variant="cycles",
                           peer_name=f"{NAMES[peer]}, cycle {name}", note=cycles if floor else no_cycle)
        yield _library("11", "1 tensor of 8 B", "one_8B", 2, peer, None, None,
                       note="no agreement, no thread on the peer's side")
        for row, step, name in (("11", "one_8B_after_work", "1 tensor of 8 B"),
                                ("10", "tiny_200_after_work", "200 tensors of 64 B, one by one")):
            yield _library(row, f"{name}, after 2 ms of other arithmetic", step, 2, peer, None, None,
                           contender="cycle_1ms", variant="cycles", peer_name=f"{NAMES[peer]}, cycle 1 ms")
            for ranks in (2, 4) if peer == "openmpi" else (2,):
                yield _library(row, f"{name}, after 2 ms of other arithmetic", step, ranks, peer, None, None,
                               note="no agreement, no thread on the peer's side")
    match = {"program": "data_plane", "workload": "fusion_copy", "ranks": 2, "variant": "default"}
    yield Check("13", "pack and unpack 64 MB in 200 tensors", match, "whole", "memcpy of the whole batch", 1.8, 2.5,
                reason="both are bound by memory")


TRAINED = {"train_mlp": "MLP, 1.6 MB", "train_cnn": "CNN, 2.2 MB", "train_small_400": "400 small parameters",
           "train_mlp_10M": "MLP, 10 M parameters",
           "train_resnet50_sizes": "ResNet-50's sizes, 64 MB, no arithmetic"}


def python_checks():
    for ranks in (2, 4):
        for workload, name, target in (("step_64MB", "64 MB in 200 tensors", 5), ("tiny_200", "200 tensors of 64 B", 4),
                                       ("one_8B", "1 tensor of 8 B", 5)):
            match = {"program": "python", "workload": workload, "ranks": ranks}
            yield Check("P", f"{name} through Python, {ranks} ranks", match, "gloo_packed", "Gloo packed by hand",
                        target, target, reason=CROWDED if ranks > 2 else "")
            if workload != "one_8B":
                yield Check("P", f"{name}, grouped, through Python, {ranks} ranks", match, "gloo_packed",
                            "Gloo packed by hand", None, None, ours="ours_together")
            if workload != "step_64MB":
                yield Check("P", f"{name} after 2 ms of other arithmetic, through Python, {ranks} ranks",
                            match | {"workload": workload + "_after_work"}, "gloo_packed", "Gloo packed by hand", None,
                            None)
    for workload, name in TRAINED.items():
        match = {"program": "python", "workload": workload, "ranks": 2}
        large = workload == "train_mlp_10M"
        yield Check("T", f"training step, {name}, 2 ranks", match, "ddp_gloo", "torch DDP over Gloo", None,
                    1.6 if large else None)
        yield Check("T", f"training step, {name}, 2 ranks", match, "alone", "the step without communication", None,
                    0.91 if large else None, note="1.0: communication costs nothing; by what it is less see the values",
                    reason="rank and engine share a core, on which the engine adds the gradients")


def all_checks():
    checks = [*data_plane_checks(), *library_checks(), *python_checks()]
    order = {"P": 100, "T": 101}
    return sorted(checks, key=lambda check: order.get(check.row) or int(check.row))
