# Google Highway has only headers, so nothing is linked. devices/host/kernel_table.hpp itself chooses the instruction
# set.
find_path(HVD_HIGHWAY_INCLUDE_DIRECTORY hwy/highway.h)
if(NOT HVD_HIGHWAY_INCLUDE_DIRECTORY)
  message(FATAL_ERROR "The headers of Google Highway (hwy/highway.h, 1.0.3 or later) were not found: install "
                      "libhwy-dev (Debian, Ubuntu) or highway-devel (Fedora, EPEL), or set "
                      "HVD_HIGHWAY_INCLUDE_DIRECTORY.")
endif()
# Highway includes each of these files once per instruction set
set_target_properties(hvd_devices PROPERTIES UNITY_BUILD OFF)
target_include_directories(hvd_devices SYSTEM PUBLIC ${HVD_HIGHWAY_INCLUDE_DIRECTORY})
if(HVD_SANITIZE MATCHES "undefined")  # with -Og and these checks the compiler takes minutes for a file
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/devices/host/reduce_*.cpp)
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS -O1)
endif()
