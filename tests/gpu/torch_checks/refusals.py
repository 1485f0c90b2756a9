"""What is refused, and that the job goes on."""
import torch
from torch_checks.this_rank import DEVICE, RANK, SIZE, Skipped, check, expect_equal, is_double

import horovod.torch as hvd


@check
def a_mismatch_is_named_and_the_job_goes_on():
    if SIZE == 1:
        raise Skipped("needs two ranks")
    try:
        hvd.allreduce(torch.ones(10 + RANK, device=DEVICE), name="of different shapes")
        raise AssertionError("tensors of different shapes were reduced")
    except hvd.HorovodInternalError as error:
        assert "shape" in str(error).lower(), str(error)
    expect_equal(hvd.allreduce(torch.ones(3, device=DEVICE), op=hvd.Sum), torch.full((3,), float(SIZE)), "afterwards")


@check
def an_operation_in_a_capture_is_refused():
    if is_double:
        raise Skipped("the double has no graphs for torch")
    tensor = torch.ones(10, device=DEVICE)
    hvd.allreduce_(tensor, name="captured")
    torch.cuda.synchronize()
    refusal = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            tensor.mul_(1)
            try:
                hvd.allreduce_async_(tensor, name="captured")
            except Exception as error:
                refusal = error
    except Exception as error:
        refusal = refusal or error
    assert refusal is not None and "captur" in str(refusal), f"{refusal!r}"
    torch.cuda.synchronize()
    expect_equal(hvd.allreduce(torch.ones(3, device=DEVICE), op=hvd.Sum), torch.full((3,), float(SIZE)), "afterwards")
