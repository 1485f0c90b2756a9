# Ranks in processes on GPUs of the double, with the core as it is installed: its table of devices opens the plugin.
if(HVD_SANITIZE OR NOT TARGET horovodrun OR NOT TARGET horovod)
  return()  # only the program may contain a sanitizer's runtime, not the double
endif()
add_executable(device_rank ${PROJECT_SOURCE_DIR}/tests/multiprocess/device_rank.cpp)
target_include_directories(device_rank PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(device_rank PRIVATE horovod ${CMAKE_DL_LIBS})
add_dependencies(device_rank horovod_cuda hvd_cuda_double)
foreach(ranks 1 2 4)
  set(name cuda.${ranks}_processes_reduce_on_gpus_through_the_installed_core)
  add_test(NAME ${name} COMMAND horovodrun -np ${ranks} $<TARGET_FILE:device_rank>)
  set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 120
                       ENVIRONMENT "HOROVOD_CUDA_DRIVER=$<TARGET_FILE:hvd_cuda_double>;HVD_DOUBLE_DELAY=3")
endforeach()
if(TARGET hvd_python_core)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(program ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/python_ranks.py)
  add_test(NAME cuda.python_orders_the_streams_of_its_framework COMMAND horovodrun -np 2 ${program})
  add_test(NAME cuda.the_driver_may_be_named_in_a_file_of_settings COMMAND horovodrun -np 1 ${program} file)
  set(variables HOROVOD_CUDA_DRIVER=$<TARGET_FILE:hvd_cuda_double> HVD_DOUBLE_DELAY=3 PYTHONDONTWRITEBYTECODE=1
                PYTHONPATH=${PROJECT_BINARY_DIR}/python)
  set_tests_properties(cuda.python_orders_the_streams_of_its_framework
                       cuda.the_driver_may_be_named_in_a_file_of_settings PROPERTIES
                       LABELS ranks TIMEOUT 120 ENVIRONMENT "${variables}")
endif()
