# torch's CUDA build on the double of CUDA (tests/doubles/torch_cuda). tests/run --label cuda-double installs the
# Python; without it these tests are skipped.
if(HVD_SANITIZE OR NOT TARGET horovodrun OR NOT TARGET hvd_python_core OR NOT TARGET hvd_nccl_double)
  return()
endif()
set(HVD_PYTHON_WITH_CUDA ${PROJECT_SOURCE_DIR}/.venv-cuda-double/bin/python
    CACHE FILEPATH "A Python with a CUDA build of torch, for the tests of the label cuda-double")
foreach(ranks 1 2 4 shared)
  set(name cuda_double.torch_is_right_on_gpus_of_${ranks}_ranks)
  set(gpus "")
  if(ranks STREQUAL shared)
    set(name cuda_double.torch_is_right_on_a_gpu_that_ranks_share)
    set(gpus ENVIRONMENT HVD_DOUBLE_DEVICES=1)
    set(ranks 2)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/run ${HVD_PYTHON_WITH_CUDA}
           ${PROJECT_BINARY_DIR} ${ranks} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/torch_ranks.py)
  set_tests_properties(${name} PROPERTIES LABELS cuda-double TIMEOUT 1200 SKIP_RETURN_CODE 77 RUN_SERIAL ON ${gpus})
endforeach()
function(hvd_torch_cuda_test name script)
  add_test(NAME cuda_double.${name}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/run ${HVD_PYTHON_WITH_CUDA} ${PROJECT_BINARY_DIR} 2
                   ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/${script})
  set_tests_properties(cuda_double.${name} PROPERTIES LABELS cuda-double TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endfunction()
hvd_torch_cuda_test(a_step_of_training_overlaps_with_its_reductions overlap.py)
hvd_torch_cuda_test(programs_that_need_a_job_of_their_own_are_right programs.py)
hvd_torch_cuda_test(training_has_the_numbers_of_distributed_data_parallel beside_ddp.py)
