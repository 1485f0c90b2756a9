# Tests of the agreement between many nodes in the simulator of benchmarks/agreement_simulator, with exact expectations.
if(HVD_SANITIZE STREQUAL "thread")  # the simulator has one thread
  return()
endif()
if(NOT TARGET hvd_agreement_simulation)
  add_subdirectory(${PROJECT_SOURCE_DIR}/benchmarks/agreement_simulator ${PROJECT_BINARY_DIR}/agreement_simulator)
endif()
hvd_test(simulator LABEL unit USES hvd_agreement_simulation)
