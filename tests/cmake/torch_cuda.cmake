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
                   ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/${script} ${ARGN})
  set_tests_properties(cuda_double.${name} PROPERTIES LABELS cuda-double TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endfunction()
# The matrix of tests/python/equals_one_process with tensors on GPUs: a selection, each kind once, over NCCL; few of it
# through the host, and along nodes and rails. The loops have fewer steps than on the host.
function(hvd_matrix_on_gpus name list part)
  add_test(NAME cuda_double.${name}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/run_tests ${HVD_PYTHON_WITH_CUDA}
                   ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/python/run --only ${part})
  set(variables ON_GPUS=${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/${list}.txt EQUALS_STEPS=12
                HVD_DOUBLE_DEVICES=4 ${ARGN})
  set_tests_properties(cuda_double.${name} PROPERTIES LABELS cuda-double TIMEOUT 1200 SKIP_RETURN_CODE 77 RUN_SERIAL ON
                       ENVIRONMENT "${variables}")
endfunction()
hvd_matrix_on_gpus(training_equals_one_process matrix equals_one_process)
hvd_matrix_on_gpus(training_through_the_host_equals_one_process few equals_one_process HOROVOD_NCCL=0)
hvd_matrix_on_gpus(training_on_two_nodes_equals_one_process few equals_in_sets RANKS_OF_A_NODE=2
                   HOROVOD_HIERARCHICAL_ALLREDUCE=1)
# The contract with tensors on GPUs. Adasum has a mean in the node on GPUs, so for its definition each rank is on a node
# of its own. Some tests of errors start further jobs, which take most of the time.
function(hvd_contract_on_gpus name files)
  set(only "")
  foreach(file ${files})
    list(APPEND only --only ${file})
  endforeach()
  add_test(NAME cuda_double.${name}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/run_tests ${HVD_PYTHON_WITH_CUDA}
                   ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/contract/run --ranks 2 --limit 240 ${only}
                   --told ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/contract_not_met.txt)
  set_tests_properties(cuda_double.${name} PROPERTIES LABELS cuda-double TIMEOUT 3600 SKIP_RETURN_CODE 77 RUN_SERIAL ON
                       ENVIRONMENT "HVD_DOUBLE_DEVICES=4;${ARGN}")
endfunction()
file(GLOB of_contract CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/contract
     ${CMAKE_CURRENT_SOURCE_DIR}/contract/test_*.py)
list(REMOVE_ITEM of_contract test_adasum.py test_optimizer.py test_optimizer_with_adasum.py)
hvd_contract_on_gpus(the_contract_holds_for_tensors_on_gpus "${of_contract}")
hvd_contract_on_gpus(the_contract_of_optimizers_and_adasum_holds_for_gpus_of_two_nodes
                     "test_adasum.py;test_optimizer.py;test_optimizer_with_adasum.py" RANKS_OF_A_NODE=1)
hvd_torch_cuda_test(a_step_of_training_overlaps_with_its_reductions overlap.py)
hvd_torch_cuda_test(programs_that_need_a_job_of_their_own_are_right programs.py)
hvd_torch_cuda_test(training_has_the_numbers_of_distributed_data_parallel beside_ddp.py)
hvd_torch_cuda_test(tensors_of_a_second_gpu_are_staged_with_a_notice staged.py second)
hvd_torch_cuda_test(tensors_of_a_rocm_torch_are_staged_with_a_notice staged.py rocm)
hvd_torch_cuda_test(tensors_are_staged_with_a_notice_where_no_plugin_is staged.py nothing)
# HOROVOD_NCCL=1: an error where NCCL cannot be used.
function(hvd_elastic_test name ranks)
  add_test(NAME cuda_double.${name}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/doubles/torch_cuda/run ${HVD_PYTHON_WITH_CUDA} ${PROJECT_BINARY_DIR}
                   ${ranks} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/torch_elastic.py ${ARGN})
  set_tests_properties(cuda_double.${name} PROPERTIES LABELS cuda-double TIMEOUT 600 SKIP_RETURN_CODE 77 RUN_SERIAL ON
                       ENVIRONMENT "RUN_OPTIONS=--min-np 1 --max-np ${ranks};HOROVOD_NCCL=1")
endfunction()
hvd_elastic_test(an_elastic_training_goes_on_with_new_communicators_after_a_loss 2)
foreach(phase between reduced step behind ahead)
  hvd_elastic_test(a_live_state_goes_on_after_a_loss_${phase} 3 ${phase})
endforeach()
