if(HVD_SANITIZE)
  return()  # checks of files, which are the same in every build
endif()
# The dependency rule and the naming rule of src/, and the proof that their tests can fail.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(checks ${PROJECT_SOURCE_DIR}/tests/layering)
add_test(NAME layering.every_include_follows_the_rule COMMAND Python3::Interpreter ${checks}/includes.py ${PROJECT_SOURCE_DIR})
add_test(NAME layering.every_name_tells_what_it_is_for COMMAND Python3::Interpreter ${checks}/names.py ${PROJECT_SOURCE_DIR})
add_test(NAME layering.the_gates_can_fail COMMAND Python3::Interpreter ${checks}/gates_test.py)
set_tests_properties(layering.every_include_follows_the_rule layering.every_name_tells_what_it_is_for
                     layering.the_gates_can_fail PROPERTIES LABELS unit TIMEOUT 60 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
