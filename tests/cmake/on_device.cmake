# C programs whose tensors are in a second kind of memory (tests/on_device). Their ranks are threads, processes under
# horovodrun, or processes on virtual nodes.
if(NOT TARGET horovod OR (HVD_TEST_FOLDERS AND NOT on_device IN_LIST HVD_TEST_FOLDERS))
  return()
endif()
set(api ${PROJECT_SOURCE_DIR}/src/api)
# The C functions are compiled into this program, as in test_programs. The program's own registry.cpp replaces that of
# hvd_devices.
add_executable(test_on_device on_device/on_device_test.cpp on_device/program.cpp on_device/registry.cpp ${api_sources}
                              ${PROJECT_SOURCE_DIR}/tests/bootstrap/sanitizers_and_libpmix.cpp)
target_include_directories(test_on_device PRIVATE ${PROJECT_SOURCE_DIR}/tests ${api})
target_link_libraries(test_on_device PRIVATE hvd_late_device hvd_runtime hvd_schedulers GTest::gtest GTest::gtest_main)
target_compile_definitions(test_on_device PRIVATE HVD_VERSION="${HVD_RELEASE}")
target_link_options(test_on_device PRIVATE -Wl,--version-script=${api}/horovod.map
                                           -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/on_device/sanitizers.map)
gtest_discover_tests(test_on_device TEST_PREFIX "on_device." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                     TEST_FILTER "-OnDeviceInProcesses.*" PROPERTIES LABELS unit TIMEOUT 180 ${hvd_computes})

if(TARGET horovodrun)
  set(in_processes $<TARGET_FILE:test_on_device> --gtest_filter=OnDeviceInProcesses.*)
  set(counts 1 2 3)
  if(HVD_SANITIZE STREQUAL "thread")
    set(counts 2)  # it sees one process at a time, and the others do what these two do
  endif()
  foreach(ranks IN LISTS counts)
    add_test(NAME on_device.of_${ranks}_processes COMMAND horovodrun -np ${ranks} ${in_processes})
    set_tests_properties(on_device.of_${ranks}_processes PROPERTIES LABELS unit TIMEOUT 120 COST 30
                         ENVIRONMENT "HOROVOD_DYNAMIC_PROCESS_SETS=1;HOROVOD_NCCL=0")
  endforeach()
endif()
