"""torch's own way to pack many tensors into one buffer, beside ours (benchmarks/devices/gpu_move.cpp)."""
import statistics
import time

import torch


def measure(tensors: int, megabytes: int) -> None:
    generator = torch.Generator().manual_seed(tensors)
    weights = torch.rand(tensors, generator=generator) + 0.05
    counts = (weights / weights.sum() * (megabytes << 20) / 4).long().tolist()
    places = max(1, min(8, (512 + megabytes - 1) // megabytes + 1))
    sources = [[torch.randn(count, device="cuda") for count in counts] for _ in range(places)]
    targets = [list(torch.empty(sum(counts), device="cuda").split(counts)) for _ in range(places)]
    calls = max(4, min(100, 4096 // megabytes))
    host, device = [], []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for call in range(calls):
            torch._foreach_copy_(targets[call % places], sources[call % places])
        host.append((time.perf_counter() - begin) / calls)
        torch.cuda.synchronize()
        device.append((time.perf_counter() - begin) / calls)
    flat = [torch.empty(sum(counts), device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        flat[0].copy_(flat[1])
    torch.cuda.synchronize()
    copy = (time.perf_counter() - begin) / calls
    seconds = statistics.median(device)
    print(f"{megabytes:6} MB, {tensors:4} tensors, torch._foreach_copy_: {seconds * 1e6:9.1f} us, "
          f"{2 * sum(counts) * 4 / seconds / 1e9:6.0f} GB/s, {100 * copy / seconds:5.1f} % of one copy; "
          f"host {statistics.median(host) * 1e6:.1f} us")


for tensors, megabytes in ((800, 1024), (200, 64), (160, 8), (32, 1)):
    measure(tensors, megabytes)
