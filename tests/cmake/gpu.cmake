# What is prepared for the day with a GPU (tests/gpu) is compiled without one, and runs on the double of the driver.
if((HVD_TEST_FOLDERS AND NOT gpu IN_LIST HVD_TEST_FOLDERS) OR HVD_SANITIZE STREQUAL "thread")
  return()  # a kernel on the double has one thread
endif()
get_property(of_plugin GLOBAL PROPERTY hvd_plugin_cuda)
list(FILTER of_plugin EXCLUDE REGEX "/plugin\\.cpp$")
file(GLOB gpu_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gpu/device/*.cpp)
add_executable(test_gpu ${gpu_tests} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/tsan/options.cpp ${of_plugin})
target_include_directories(test_gpu PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(test_gpu PRIVATE hvd_devices hvd_cuda_image GTest::gtest GTest::gtest_main)
if(TARGET hvd_cuda_double)
  add_dependencies(test_gpu hvd_cuda_double)
  gtest_discover_tests(test_gpu TEST_PREFIX "gpu." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                       TEST_FILTER "GpuKernels.*"  # test_cuda has the others
                       PROPERTIES LABELS unit TIMEOUT 180 ${hvd_computes}
                       ENVIRONMENT "HOROVOD_CUDA_DRIVER=$<TARGET_FILE:hvd_cuda_double>")
endif()

if(HVD_SANITIZE)
  return()  # the probe is compiled by a script of its own, with the same flags in every build
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME gpu.the_probe_compiles_and_tells_that_there_is_no_gpu
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/probe_test.py)
set_tests_properties(gpu.the_probe_compiles_and_tells_that_there_is_no_gpu
                     PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77 ${hvd_computes})
add_test(NAME gpu.the_script_for_a_machine_with_a_GPU_goes_on_where_it_was
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/run_test.py)
set_tests_properties(gpu.the_script_for_a_machine_with_a_GPU_goes_on_where_it_was PROPERTIES LABELS unit TIMEOUT 60)
