# Checks the symbols that the core library needs and exports. A sanitizer would add symbols of its own.
if(TARGET horovod AND NOT HVD_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME symbols.of_the_core_are_c_functions_of_ours_alone
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/layering/symbols.py $<TARGET_FILE:horovod>
                   ${PROJECT_SOURCE_DIR}/src/api/horovod.h)
  set_tests_properties(symbols.of_the_core_are_c_functions_of_ours_alone PROPERTIES LABELS unit TIMEOUT 60)
  set(files)
  get_property(plugins GLOBAL PROPERTY hvd_plugins)
  foreach(target IN ITEMS horovod horovodrun hvd_python_core hvd_python_tensorflow
          hvd_python_horovodrun LISTS plugins)
    if(TARGET ${target})
      list(APPEND files $<TARGET_FILE:${target}>)
    endif()
  endforeach()
  add_test(NAME symbols.of_the_c_library_are_those_of_the_oldest_system
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/layering/libc_symbols.py ${files})
  set_tests_properties(symbols.of_the_c_library_are_those_of_the_oldest_system PROPERTIES LABELS unit TIMEOUT 60)
endif()
