# The agreement between nodes in the large: the simulator of benchmarks/agreement_simulator, with exact expectations.
if(HVD_SANITIZE STREQUAL "thread")  # one thread: nothing to race with
  return()
endif()
if(NOT TARGET hvd_agreement_simulation)
  add_subdirectory(${PROJECT_SOURCE_DIR}/benchmarks/agreement_simulator ${PROJECT_BINARY_DIR}/agreement_simulator)
endif()
hvd_test(simulator LABEL unit USES hvd_agreement_simulation)
