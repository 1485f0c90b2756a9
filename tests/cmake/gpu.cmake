if(HVD_SANITIZE OR (HVD_TEST_FOLDERS AND NOT gpu IN_LIST HVD_TEST_FOLDERS))
  return()  # the probe is compiled by a script of its own, with the same flags in every build
endif()
# What is prepared for the day with a GPU (tests/gpu) is compiled without one.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME gpu.the_probe_compiles_and_tells_that_there_is_no_gpu
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/probe_test.py)
set_tests_properties(gpu.the_probe_compiles_and_tells_that_there_is_no_gpu
                     PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77 ${hvd_computes})
