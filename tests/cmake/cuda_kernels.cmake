# The kernels of devices/cuda, compiled for the host, and what plans their launches, which is a part of the plugin.
# Tests compare them with the kernels of devices/host.
add_library(hvd_cuda_kernels_on_host STATIC ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/cuda_kernels/on_host.cpp
            ${PROJECT_SOURCE_DIR}/src/devices/cuda/launches.cpp)
target_include_directories(hvd_cuda_kernels_on_host PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(hvd_cuda_kernels_on_host PUBLIC hvd_base)
target_include_directories(hvd_cuda_kernels_on_host PUBLIC ${PROJECT_SOURCE_DIR}/src)
if(TARGET test_devices)
  target_link_libraries(test_devices PRIVATE hvd_cuda_kernels_on_host)
endif()

# The compiled kernels, as far as they can be judged without a GPU.
if(HVD_SANITIZE OR (HVD_TEST_FOLDERS AND NOT devices IN_LIST HVD_TEST_FOLDERS))
  return()  # the image is the same in every build
endif()
get_property(all_ptx GLOBAL PROPERTY hvd_cuda_ptx)
get_property(chips GLOBAL PROPERTY hvd_cuda_chips)
if(NOT all_ptx)
  message(NOTICE "-- the compiled kernels for GPUs are not tested: there are none without nvcc (HVD_CUDA_KERNELS)")
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(judge Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/devices/cuda_image.py)
set(of_image "")
foreach(chip IN LISTS chips)
  add_test(NAME cuda_image.of_sm_${chip}_fits_into_registers
           COMMAND ${judge} fits ${PROJECT_BINARY_DIR}/cuda_kernels/kernels_${chip}.report)
  list(APPEND of_image cuda_image.of_sm_${chip}_fits_into_registers)
endforeach()
foreach(ptx IN LISTS all_ptx)
  cmake_path(GET ptx STEM name)
  add_test(NAME cuda_image.of_${name}_has_vectors_and_fuses_no_arithmetic COMMAND ${judge} computes ${ptx})
  list(APPEND of_image cuda_image.of_${name}_has_vectors_and_fuses_no_arithmetic)
  if(chips AND name STREQUAL "kernels_70")
    # This ptxas may not know sm_70 any more; any later chip takes its PTX.
    list(GET chips 0 chip)
    add_test(NAME cuda_image.of_V100_fits_into_registers COMMAND ${judge} assembles ${HVD_PTXAS} ${chip} ${ptx})
    list(APPEND of_image cuda_image.of_V100_fits_into_registers)
  endif()
endforeach()
add_test(NAME cuda_image.needs_nothing_of_CUDA COMMAND ${judge} is_alone $<TARGET_FILE:hvd_cuda_image>)
set_tests_properties(${of_image} cuda_image.needs_nothing_of_CUDA
                     PROPERTIES LABELS unit TIMEOUT 120 ${hvd_computes})
