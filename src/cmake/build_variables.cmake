# Handles the environment variables that Horovod's build reads. If the build can do what a variable asks for, it does
# so. If the build does that in any case, it prints a message. If the build cannot do it, it stops with an error.
# docs/migration.md has a table of these variables. `cmake -P` runs this file by itself. Afterwards HVD_WITHOUT_MPI is
# true if no plugin for MPI is wanted.
set(HVD_WITHOUT_MPI OFF)

function(hvd_cannot_be_had)
  string(JOIN "" reason ${ARGN})
  message(FATAL_ERROR "${reason} [HVD1011]")
endfunction()

# Sets `result` to true if a variable of the environment (0 or 1) is on.
function(hvd_requested variable result)
  set(value "$ENV{${variable}}")
  if(NOT value MATCHES "^(|0|1)$")
    hvd_cannot_be_had("${variable}: expected 0 or 1, found '${value}'")
  endif()
  set(${result} OFF PARENT_SCOPE)
  if(value)
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

set(says_PYTORCH "one build serves every PyTorch; none is needed to build, and nothing is left out")
set(says_GLOO "what Gloo stands for, meeting and communicating without an MPI, is part of every build")
set(says_TENSORFLOW "one build serves TensorFlow 2.13 and later; none is needed to build, and nothing is left out")
set(lacks_MXNET "this release has no binding for MXNet")
set(says_NVTX "ranges for NVIDIA's profilers are part of every build; HOROVOD_DISABLE_NVTX_RANGES=1 turns them off")
foreach(part MPI GLOO TENSORFLOW PYTORCH MXNET NVTX)
  hvd_requested(HOROVOD_WITH_${part} with)
  hvd_requested(HOROVOD_WITHOUT_${part} without)
  if(with AND without)
    hvd_cannot_be_had("HOROVOD_WITH_${part} and HOROVOD_WITHOUT_${part} contradict each other: unset one")
  elseif(with AND lacks_${part})
    hvd_cannot_be_had("HOROVOD_WITH_${part}=1: ${lacks_${part}} (unset it to build what there is)")
  elseif((with OR without) AND says_${part})
    message(NOTICE "-- HOROVOD_WITH_${part}, HOROVOD_WITHOUT_${part}: ${says_${part}}")
  elseif(part STREQUAL MPI AND with)
    message(NOTICE "-- HOROVOD_WITH_MPI: plugins are built for each ABI of MPI; the MPI itself is found at run time")
  elseif(part STREQUAL MPI AND without)
    message(NOTICE "-- HOROVOD_WITHOUT_MPI: no plugin for MPI is built")
    set(HVD_WITHOUT_MPI ON)
  endif()
endforeach()

set(operations "$ENV{HOROVOD_CPU_OPERATIONS}")
string(TOUPPER "${operations}" operations)
if(operations STREQUAL "CCL")
  hvd_cannot_be_had("HOROVOD_CPU_OPERATIONS=$ENV{HOROVOD_CPU_OPERATIONS}: there is no oneCCL here, but MPI and GLOO")
elseif(NOT operations MATCHES "^(|MPI|GLOO)$")
  hvd_cannot_be_had(
    "HOROVOD_CPU_OPERATIONS: expected MPI, GLOO or nothing, found '$ENV{HOROVOD_CPU_OPERATIONS}'")
elseif(operations STREQUAL "MPI" AND HVD_WITHOUT_MPI)
  hvd_cannot_be_had("HOROVOD_CPU_OPERATIONS=MPI and HOROVOD_WITHOUT_MPI=1 contradict each other: unset one")
elseif(operations)
  message(NOTICE "-- HOROVOD_CPU_OPERATIONS: one build has both; it is chosen at run time (docs/mpi.md)")
endif()

foreach(variable GPU GPU_OPERATIONS GPU_ALLREDUCE GPU_ALLGATHER GPU_BROADCAST GPU_ALLTOALL GPU_REDUCESCATTER)
  set(given "$ENV{HOROVOD_${variable}}")
  string(TOUPPER "${given}" value)
  if(variable STREQUAL GPU AND value STREQUAL CUDA OR NOT variable STREQUAL GPU AND value STREQUAL NCCL)
    message(NOTICE "-- HOROVOD_${variable}=${given}: the plugins for CUDA and NCCL are part of every build; driver "
                   "and NCCL are found at run time")
  elseif(variable STREQUAL GPU AND value)
    hvd_cannot_be_had("HOROVOD_GPU=${given}: expected CUDA or nothing, this release knows NVIDIA's GPUs alone (unset "
                      "it to build what there is)")
  elseif(value)
    hvd_cannot_be_had("HOROVOD_${variable}=${given}: expected NCCL or nothing. Tensors on GPUs go over NCCL; without "
                      "it they are staged through host memory, and go over MPI from there if HOROVOD_MPI asks for it "
                      "at run time")
  endif()
endforeach()

set(of_gpus "nothing of CUDA or NCCL is linked, both are found at run time")
set(answers
  "HOROVOD_ALLOW_MIXED_GPU_IMPL|${of_gpus}" "HOROVOD_CUDA_HOME|${of_gpus}" "HOROVOD_NCCL_HOME|${of_gpus}"
  "HOROVOD_NCCL_INCLUDE|${of_gpus}" "HOROVOD_NCCL_LIB|${of_gpus}" "HOROVOD_NCCL_LINK|${of_gpus}"
  "HOROVOD_ROCM_HOME|${of_gpus}" "HOROVOD_BUILD_CUDA_CC_LIST|${of_gpus}" "HOROVOD_NVTX_INCLUDE|${of_gpus}"
  "HOROVOD_BUILD_ARCH_FLAGS|the instructions of the processor are chosen at run time"
  "HOROVOD_BUILD_FLAGS|use CXXFLAGS and LDFLAGS"
  "HOROVOD_CMAKE|the build takes the cmake that pip or PATH has"
  "HOROVOD_SKIP_COMPILE|a package without its library cannot start"
  "HOROVOD_LOCAL_VERSION|the version is that of the sources")
foreach(answer IN LISTS answers)
  string(REPLACE "|" ";" answer "${answer}")
  list(GET answer 0 variable)
  list(GET answer 1 text)
  if(NOT "$ENV{${variable}}" STREQUAL "")
    message(NOTICE "-- ${variable} has no effect: ${text}")
  endif()
endforeach()

hvd_requested(HOROVOD_DEBUG debug)
if(debug)
  message(NOTICE "-- HOROVOD_DEBUG: `pip install` builds with CMAKE_BUILD_TYPE=Debug (pyproject.toml)")
endif()
