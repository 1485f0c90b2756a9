# Google Highway: headers only (devices/kernel_table.hpp chooses the instruction set itself), so nothing is linked.
find_path(HVD_HIGHWAY_INCLUDE_DIRECTORY hwy/highway.h)
if(NOT HVD_HIGHWAY_INCLUDE_DIRECTORY)
  message(FATAL_ERROR "The headers of Google Highway (hwy/highway.h, 1.0.3 or later) were not found: install libhwy-dev "
                      "(Debian, Ubuntu) or highway-devel (Fedora, EPEL), or set HVD_HIGHWAY_INCLUDE_DIRECTORY.")
endif()
target_include_directories(hvd_devices SYSTEM PUBLIC ${HVD_HIGHWAY_INCLUDE_DIRECTORY})
