# The double of NVIDIA's driver (tests/doubles/cuda) as a shared object with the driver's name, in a folder of its own.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/doubles/cuda/*.cpp)
file(GLOB engine CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/device_double/*.cpp)
list(REMOVE_ITEM engine ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/device_double/fails_tests.cpp)
add_library(hvd_cuda_double SHARED ${sources} ${engine}
            ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/cuda_kernels/on_host.cpp)
target_include_directories(hvd_cuda_double PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(hvd_cuda_double PRIVATE hvd_base hvd_native)
hvd_exports(hvd_cuda_double ${CMAKE_CURRENT_SOURCE_DIR}/doubles/cuda/exports.map)
set_target_properties(hvd_cuda_double PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/doubles/cuda)

# cuda.h, where a toolkit is present, agrees with what we declare ourselves.
find_path(HVD_CUDA_HEADER cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include
          NO_DEFAULT_PATH DOC "The folder of NVIDIA's cuda.h, for a test")
if(HVD_CUDA_HEADER)
  add_library(cuda_header_agrees OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/doubles/cuda/header/agrees.cpp)
  target_include_directories(cuda_header_agrees SYSTEM PRIVATE ${HVD_CUDA_HEADER})
  target_link_libraries(cuda_header_agrees PRIVATE hvd_base)
else()
  message(NOTICE "-- what we declare of CUDA's driver is not compared with cuda.h: it was not found")
endif()

# What talks to the driver, without the rest of the plugin, and the tests of both sides.
if(HVD_TEST_FOLDERS AND NOT cuda IN_LIST HVD_TEST_FOLDERS)
  return()
endif()
get_property(of_plugin GLOBAL PROPERTY hvd_plugin_cuda)
list(FILTER of_plugin INCLUDE REGEX "/native/cuda/|/devices/cuda/launches\\.cpp$")
file(GLOB cuda_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cpp)
add_executable(test_cuda ${cuda_tests} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/tsan/options.cpp ${of_plugin})
target_include_directories(test_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
add_dependencies(test_cuda horovod_cuda)
target_link_libraries(test_cuda PRIVATE hvd_devices hvd_cuda_double GTest::gtest GTest::gtest_main)
target_compile_options(test_cuda PRIVATE $<IF:$<CONFIG:Debug>,-O0,-O1>)
target_compile_definitions(test_cuda PRIVATE HVD_CUDA_DOUBLE="$<TARGET_FILE:hvd_cuda_double>")
set(filter "*")
if(HVD_SANITIZE STREQUAL "thread")  # of all alignments the threads see nothing
  set(filter "-*.moves_and_treats_every_type_at_every_alignment/*")
endif()
gtest_discover_tests(test_cuda TEST_PREFIX "cuda." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                     TEST_FILTER "${filter}"
                     PROPERTIES LABELS unit TIMEOUT 180 ENVIRONMENT HVD_DOUBLE_DELAY=3 ${hvd_computes})

# Ranks on GPUs. The C functions are compiled into this program, as in test_on_device.
if(NOT TARGET horovod)
  return()
endif()
list(FILTER of_plugin EXCLUDE REGEX "/launches\\.cpp$")
file(GLOB of_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/python/kernels/*.cpp)
add_executable(test_cuda_ranks cuda/ranks/ranks_test.cpp cuda/findings.cpp cuda/tsan/options.cpp
                               ${of_plugin} ${api_sources} ${of_kernels}
                               ${PROJECT_SOURCE_DIR}/tests/bootstrap/sanitizers_and_libpmix.cpp)
add_dependencies(test_cuda_ranks horovod_cuda)
target_include_directories(test_cuda_ranks PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src/api)
target_link_libraries(test_cuda_ranks PRIVATE hvd_runtime hvd_schedulers hvd_cuda_double GTest::gtest
                                              GTest::gtest_main)
target_compile_definitions(test_cuda_ranks PRIVATE HVD_VERSION="${HVD_RELEASE}"
                                                   HVD_CUDA_DOUBLE="$<TARGET_FILE:hvd_cuda_double>")
target_link_options(test_cuda_ranks PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/api/horovod.map
                                            -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/on_device/sanitizers.map)
gtest_discover_tests(test_cuda_ranks TEST_PREFIX "cuda." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                     PROPERTIES LABELS unit TIMEOUT 180 ENVIRONMENT HVD_DOUBLE_DELAY=3 ${hvd_computes})
