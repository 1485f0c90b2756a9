# tests/fixtures/device_double stands in for GPUs and their driver. tests/fixtures/late_device is its face for tests of
# the core.
file(GLOB double_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/device_double/*.cpp)
add_library(hvd_device_double STATIC ${double_sources})
target_include_directories(hvd_device_double PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(hvd_device_double PUBLIC hvd_base hvd_native GTest::gtest)
add_library(hvd_late_device STATIC ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/late_device/late_device.cpp
            ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/late_device/direct_transport.cpp)
target_link_libraries(hvd_late_device PUBLIC hvd_device_double hvd_transport)
foreach(test IN ITEMS devices collectives conformance runtime)
  if(TARGET test_${test})
    target_link_libraries(test_${test} PRIVATE hvd_late_device)
  endif()
endforeach()
