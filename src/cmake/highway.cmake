# Google Highway: headers only (devices/host/kernel_table.hpp chooses the instruction set itself), so nothing is linked.
find_path(HVD_HIGHWAY_INCLUDE_DIRECTORY hwy/highway.h)
if(NOT HVD_HIGHWAY_INCLUDE_DIRECTORY)
  message(FATAL_ERROR "The headers of Google Highway (hwy/highway.h, 1.0.3 or later) were not found: install "
                      "libhwy-dev (Debian, Ubuntu) or highway-devel (Fedora, EPEL), or set "
                      "HVD_HIGHWAY_INCLUDE_DIRECTORY.")
endif()
# Highway includes each of these files once per instruction set
set_target_properties(hvd_devices PROPERTIES UNITY_BUILD OFF)
target_include_directories(hvd_devices SYSTEM PUBLIC ${HVD_HIGHWAY_INCLUDE_DIRECTORY})
if(HVD_SANITIZE MATCHES "undefined")
  # Asking before every access in them whether a pointer is null, which is seen without asking, took the compiler a
  # minute.
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/devices/host/reduce_*.cpp)
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "-O1;-fno-sanitize=null")
endif()
