# What the core library needs and exports. A sanitizer adds symbols of its own.
if(TARGET horovod AND NOT HVD_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME symbols.of_the_core_are_c_functions_of_ours_alone
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/layering/symbols.py $<TARGET_FILE:horovod>
                   ${PROJECT_SOURCE_DIR}/src/api/horovod.h)
  set_tests_properties(symbols.of_the_core_are_c_functions_of_ours_alone PROPERTIES LABELS unit TIMEOUT 60)
endif()
