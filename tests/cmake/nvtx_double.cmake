# The double of a profiler that takes ranges (tests/doubles/nvtx), a shared object as profilers load one.
if(NOT TARGET test_runtime)
  return()
endif()
add_library(hvd_nvtx_double SHARED ${CMAKE_CURRENT_SOURCE_DIR}/doubles/nvtx/injection.cpp)
target_include_directories(hvd_nvtx_double PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(hvd_nvtx_double PRIVATE hvd_base)
set_target_properties(hvd_nvtx_double PROPERTIES UNITY_BUILD OFF
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/doubles/nvtx)
target_link_libraries(test_runtime PRIVATE hvd_nvtx_double)
target_compile_definitions(test_runtime PRIVATE HVD_NVTX_DOUBLE="$<TARGET_FILE:hvd_nvtx_double>")

# nvToolsExt.h, where it is present, agrees with what we declare ourselves.
find_path(HVD_NVTX_HEADER nvtx3/nvToolsExt.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /usr
          PATH_SUFFIXES include NO_DEFAULT_PATH DOC "The folder of NVIDIA's nvtx3/nvToolsExt.h, for a test")
if(HVD_NVTX_HEADER)
  add_library(nvtx_header_agrees OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/doubles/nvtx/header/agrees.cpp)
  target_include_directories(nvtx_header_agrees SYSTEM PRIVATE ${HVD_NVTX_HEADER})
  target_link_libraries(nvtx_header_agrees PRIVATE hvd_base)
else()
  message(NOTICE "-- what we declare of NVTX is not compared with nvToolsExt.h: it was not found (HVD_NVTX_HEADER)")
endif()
