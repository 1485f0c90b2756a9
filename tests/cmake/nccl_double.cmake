# The double of NCCL (tests/doubles/nccl) as a shared object with NCCL's name, in a folder of its own. It works over the
# double of the driver.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/doubles/nccl/*.cpp)
add_library(hvd_nccl_double SHARED ${sources})
target_include_directories(hvd_nccl_double PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(hvd_nccl_double PRIVATE hvd_devices hvd_cuda_double)
hvd_exports(hvd_nccl_double ${CMAKE_CURRENT_SOURCE_DIR}/doubles/nccl/exports.map)
set_target_properties(hvd_nccl_double PROPERTIES OUTPUT_NAME nccl SOVERSION 2 UNITY_BUILD OFF
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/doubles/nccl)

# nccl.h, where it is present, agrees with what we declare ourselves.
find_path(HVD_NCCL_HEADER nccl.h HINTS ENV NCCL_HOME ENV NCCL_ROOT
          PATHS ${PROJECT_SOURCE_DIR}/build/nccl-header/nvidia/nccl /usr /usr/local PATH_SUFFIXES include
          NO_DEFAULT_PATH DOC "The folder of NVIDIA's nccl.h, for a test")
if(HVD_NCCL_HEADER AND HVD_CUDA_HEADER)
  add_library(nccl_header_agrees OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/doubles/nccl/header/agrees.cpp)
  target_include_directories(nccl_header_agrees SYSTEM PRIVATE ${HVD_NCCL_HEADER} ${HVD_CUDA_HEADER})
  target_link_libraries(nccl_header_agrees PRIVATE hvd_base)
else()
  message(NOTICE "-- what we declare of NCCL is not compared with nccl.h: it was not found (HVD_NCCL_HEADER)")
endif()

# The transport over both doubles, its ranks as threads of one process. The plugins are the shipped ones.
if(NOT HVD_TEST_FOLDERS OR nccl IN_LIST HVD_TEST_FOLDERS)
  file(GLOB nccl_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/nccl/*.cpp)
  add_executable(test_nccl ${nccl_tests} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/tsan/options.cpp
                           ${PROJECT_SOURCE_DIR}/src/native/nccl/library.cpp
                           ${PROJECT_SOURCE_DIR}/src/transport/nccl/communicator.cpp
                           ${CMAKE_CURRENT_SOURCE_DIR}/conformance/exercise.cpp)
  target_include_directories(test_nccl PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  add_dependencies(test_nccl horovod_cuda horovod_nccl)
  target_link_libraries(test_nccl PRIVATE hvd_collectives hvd_cuda_double hvd_nccl_double GTest::gtest
                                          GTest::gtest_main)
  target_compile_options(test_nccl PRIVATE $<IF:$<CONFIG:Debug>,-O0,-O1>)
  target_compile_definitions(test_nccl PRIVATE HVD_CUDA_DOUBLE="$<TARGET_FILE:hvd_cuda_double>"
                                               HVD_NCCL_DOUBLE="$<TARGET_FILE:hvd_nccl_double>")
  gtest_discover_tests(test_nccl TEST_PREFIX "nccl." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS unit TIMEOUT 180 ENVIRONMENT HVD_DOUBLE_DELAY=3 ${hvd_computes})
endif()

# Ranks in processes over both doubles, with the core as it is installed. The program runs on real GPUs, too.
if(NOT TARGET horovod)
  return()
endif()
add_executable(nccl_ranks gpu/nccl_ranks.cpp ${PROJECT_SOURCE_DIR}/src/native/nccl/library.cpp)
target_include_directories(nccl_ranks PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(nccl_ranks PRIVATE horovod hvd_native ${CMAKE_DL_LIBS})
add_dependencies(nccl_ranks horovod_cuda horovod_nccl)
if(HVD_SANITIZE OR NOT TARGET horovodrun)  # only the program may contain a sanitizer's runtime, not the doubles
  return()
endif()
set(on_doubles HOROVOD_CUDA_DRIVER=$<TARGET_FILE:hvd_cuda_double> HOROVOD_NCCL_LIBRARY=$<TARGET_FILE:hvd_nccl_double>
               HVD_DOUBLE_DELAY=3 HOROVOD_DEVICE_FUSION_THRESHOLD=1048576)
# A rank that is left says what it was told, and what it has in memory. A slow machine gets time for that.
set(patient HOROVOD_TERMINATION_GRACE_SECONDS=90)
foreach(ranks 2 4)
  set(name nccl.${ranks}_processes_do_every_verb_from_gpu_to_gpu)
  add_test(NAME ${name} COMMAND horovodrun -np ${ranks} $<TARGET_FILE:nccl_ranks>)
  set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 300 ENVIRONMENT "${on_doubles}")
endforeach()
add_test(NAME nccl.a_lost_rank_is_named_and_leaves_no_number COMMAND horovodrun -np 3 $<TARGET_FILE:nccl_ranks> loss)
set_tests_properties(nccl.a_lost_rank_is_named_and_leaves_no_number
                     PROPERTIES LABELS ranks TIMEOUT 120 ENVIRONMENT "${on_doubles};${patient}"
                                PASS_REGULAR_EXPRESSION "ok loss_is_named" FAIL_REGULAR_EXPRESSION "failed ")
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(class Jobs Preflight)
  add_test(NAME nccl.what_is_missing_bad_or_slow_is_named.${class}
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/nccl/jobs_test.py $<TARGET_FILE:horovodrun>
                   $<TARGET_FILE:nccl_ranks> $<TARGET_FILE:hvd_cuda_double> $<TARGET_FILE:hvd_nccl_double> ${class})
  set_tests_properties(nccl.what_is_missing_bad_or_slow_is_named.${class} PROPERTIES LABELS ranks TIMEOUT 300 COST 50)
endforeach()
if(TARGET hvd_python_core)
  add_test(NAME nccl.python_does_not_wait_for_the_gpu
           COMMAND horovodrun -np 2 ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/python_ranks.py)
  set(variables ${on_doubles} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=${PROJECT_BINARY_DIR}/python)
  set_tests_properties(nccl.python_does_not_wait_for_the_gpu PROPERTIES
                       LABELS ranks TIMEOUT 120 ENVIRONMENT "${variables}")
  foreach(how loss cut)
    set(name nccl.python_gives_memory_back_after_a_loss)
    if(how STREQUAL cut)
      set(name nccl.python_gives_memory_back_after_a_launch_that_is_cut_off)
    endif()
    add_test(NAME ${name} COMMAND horovodrun -np 2 ${Python3_EXECUTABLE}
                                  ${CMAKE_CURRENT_SOURCE_DIR}/cuda/python_ranks.py ${how})
    set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 120
                                            ENVIRONMENT "${variables};${patient};HOROVOD_PEER_TIMEOUT=1"
                                            PASS_REGULAR_EXPRESSION "rank 0 has its memory"
                                            FAIL_REGULAR_EXPRESSION "has findings;Error")
  endforeach()
  add_test(NAME nccl.python_waits_for_the_gpu_if_it_is_told_to
           COMMAND horovodrun -np 2 ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/python_ranks.py)
  set_tests_properties(nccl.python_waits_for_the_gpu_if_it_is_told_to PROPERTIES LABELS ranks TIMEOUT 120
                       ENVIRONMENT "${variables};HOROVOD_ENABLE_ASYNC_COMPLETION=0")
endif()
# Two ranks on each of two nodes: NCCL in the nodes, TCP along the rails.
add_test(NAME nccl.4_processes_on_2_nodes_reduce_along_nodes_and_rails
         COMMAND horovodrun -np 4 sh -c [[HOROVOD_FAKE_NODE=$((HOROVOD_RANK / 2)) exec "$0"]]
                 $<TARGET_FILE:nccl_ranks>)
set_tests_properties(nccl.4_processes_on_2_nodes_reduce_along_nodes_and_rails
                     PROPERTIES LABELS ranks TIMEOUT 300
                                ENVIRONMENT "${on_doubles};HOROVOD_HIERARCHICAL_ALLREDUCE=1")
