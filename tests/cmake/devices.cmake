# tests/fixtures/late_device, a second kind of memory for tests.
add_library(hvd_late_device STATIC ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/late_device/late_device.cpp
            ${CMAKE_CURRENT_SOURCE_DIR}/fixtures/late_device/direct_transport.cpp)
target_include_directories(hvd_late_device PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(hvd_late_device PUBLIC hvd_transport)
foreach(test IN ITEMS devices conformance runtime)
  if(TARGET test_${test})
    target_link_libraries(test_${test} PRIVATE hvd_late_device)
  endif()
endforeach()
