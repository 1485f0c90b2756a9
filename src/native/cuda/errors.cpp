#include "native/cuda/errors.hpp"

namespace hvd::cuda {
namespace {

struct Meaning {
  Code code;
  ErrorCode kind;
  bool is_final;
  const char* advice;
};

constexpr ErrorCode system = ErrorCode::system, memory = ErrorCode::out_of_memory, unsupported = ErrorCode::unsupported,
                    argument = ErrorCode::invalid_argument;
constexpr const char* our_fault_or_the_programs =
    "a kernel has used memory in a wrong way, of this program or of Horovod; compute-sanitizer names it. With MPS it "
    "may be of another process, or of one that was killed";
constexpr const char* mps = "ask the site for MPS, its log is in CUDA_MPS_LOG_DIRECTORY";
constexpr const char* captured =
    "an operation of Horovod cannot be a part of a CUDA graph: start it outside of the capture";

constexpr Meaning meanings[] = {
    {Code::out_of_memory, memory, false,
     "free memory of the GPU, or let fewer ranks share it; HOROVOD_DEVICE_FUSION_THRESHOLD makes batches smaller"},
    {Code::stub_library, unsupported, false,
     "the loader found the stub of a toolkit; take the folder stubs out of LD_LIBRARY_PATH"},
    {Code::device_unavailable, system, false,
     "another process has the GPU in exclusive mode, or this one may not use it: one process for each GPU, or ask the "
     "site for MPS or the compute mode DEFAULT (nvidia-smi -q -d COMPUTE)"},
    {Code::no_device, unsupported, false, "no GPU is visible: look at CUDA_VISIBLE_DEVICES and nvidia-smi"},
    {Code::invalid_device, argument, false, "there is no GPU of that number: look at CUDA_VISIBLE_DEVICES"},
    {Code::ecc_uncorrectable, system, true,
     "the memory of the GPU has failed; leave this node out and tell the site (nvidia-smi -q -d ECC)"},
    {Code::nvlink_uncorrectable, system, true, "a link between GPUs has failed; leave this node out and tell the site"},
    {Code::contained, system, true, "the memory of the GPU has failed; start the job again and tell the site"},
    {Code::no_binary_for_gpu, unsupported, false, "Horovod has no kernels for this GPU"},
    {Code::invalid_image, unsupported, false, "Horovod's kernels are newer than the driver"},
    {Code::invalid_ptx, unsupported, false, "Horovod's kernels are newer than the driver"},
    {Code::unsupported_ptx_version, unsupported, false, "Horovod's kernels are newer than the driver"},
    {Code::jit_compiler_not_found, unsupported, false, "the driver has no compiler: libnvidia-ptxjitcompiler.so.1"},
    {Code::jit_compilation_disabled, unsupported, false, "unset CUDA_DISABLE_PTX_JIT"},
    {Code::illegal_address, system, true, our_fault_or_the_programs},
    {Code::misaligned_address, system, true, our_fault_or_the_programs},
    {Code::illegal_instruction, system, true, our_fault_or_the_programs},
    {Code::invalid_pc, system, true, our_fault_or_the_programs},
    {Code::hardware_stack_error, system, true, our_fault_or_the_programs},
    {Code::launch_failed, system, true, "a kernel has failed, or the GPU is lost (dmesg has a line with Xid then)"},
    {Code::launch_timeout, system, true, "a kernel ran for too long on a GPU with a display"},
    {Code::context_is_destroyed, system, true, "the program has reset the GPU (cudaDeviceReset)"},
    {Code::not_permitted, system, false, "look at the rights of /dev/nvidia*"},
    {Code::system_not_ready, system, false, "the fabric manager or the GPU is not ready yet; tell the site"},
    {Code::system_driver_mismatch, system, false,
     "the driver's library and its kernel module differ; restart the node, or give the container the host's library"},
    {Code::mps_connection_failed, system, false, mps},
    {Code::mps_rpc_failure, system, true, mps},
    {Code::mps_server_not_ready, system, false, mps},
    {Code::mps_max_clients_reached, system, false, "let fewer processes share the GPU; MPS has no place for more"},
    {Code::mps_max_connections_reached, system, false, "let fewer processes share the GPU; MPS has no place for more"},
    {Code::mps_client_terminated, system, true, mps},
    {Code::stream_capture_unsupported, argument, false, captured},
    {Code::stream_capture_invalidated, argument, false, captured},
    {Code::stream_capture_implicit, argument, false, captured},
    {Code::captured_event, argument, false, captured},
    {Code::unknown, system, true, "the GPU may be lost: nvidia-smi, and dmesg has a line with Xid then"},
};

const Meaning* meaning_of(Code code) noexcept {
  for (const Meaning& meaning : meanings)
    if (meaning.code == code) return &meaning;
  return nullptr;
}

}  // namespace

Error error_of(const Driver& driver, Code code, const std::string& what, std::source_location origin) {
  const char *name = nullptr, *text = nullptr;
  static_cast<void>(driver.error_name(code, &name));
  static_cast<void>(driver.error_text(code, &text));
  std::string message = what + ": " + (name != nullptr ? name : "an unknown error") + " (" +
                        std::to_string(static_cast<int>(code)) + (text != nullptr ? std::string(", ") + text : "") +
                        ")";
  const Meaning* meaning = meaning_of(code);
  if (meaning != nullptr) message += std::string(": ") + meaning->advice;
  return Error(meaning != nullptr ? meaning->kind : system, std::move(message), origin);
}

bool is_final(Code code) noexcept {
  const Meaning* meaning = meaning_of(code);
  return meaning != nullptr && meaning->is_final;
}

}  // namespace hvd::cuda
