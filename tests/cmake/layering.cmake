if(HVD_SANITIZE)
  return()  # these tests check files that are the same in every build
endif()
# Checks the rules for includes, names and lines, and proves that these checks can fail.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(checks ${PROJECT_SOURCE_DIR}/tests/layering)
set(tree ${PROJECT_SOURCE_DIR})
add_test(NAME layering.every_include_follows_the_rule COMMAND Python3::Interpreter ${checks}/includes.py ${tree})
add_test(NAME layering.every_name_tells_what_it_is_for COMMAND Python3::Interpreter ${checks}/names.py ${tree})
add_test(NAME layering.no_line_has_more_than_120_columns COMMAND Python3::Interpreter ${checks}/lines.py ${tree})
add_test(NAME layering.no_switch_over_a_closed_set_has_a_default
         COMMAND Python3::Interpreter ${checks}/closed_sets.py ${tree})
add_test(NAME layering.no_make_of_gpu_is_named_outside_of_its_folders
         COMMAND Python3::Interpreter ${checks}/makes.py ${tree})
add_test(NAME layering.only_owners_know_names_of_transports_and_variables_of_schedulers
         COMMAND Python3::Interpreter ${checks}/owned_names.py ${tree})
add_test(NAME layering.no_text_has_a_word_that_we_do_not_use COMMAND Python3::Interpreter ${checks}/words.py ${tree})
add_test(NAME layering.the_gates_can_fail COMMAND Python3::Interpreter ${checks}/gates_test.py)
set_tests_properties(layering.every_include_follows_the_rule layering.every_name_tells_what_it_is_for
                     layering.no_line_has_more_than_120_columns layering.the_gates_can_fail
                     layering.no_switch_over_a_closed_set_has_a_default layering.no_text_has_a_word_that_we_do_not_use
                     layering.no_make_of_gpu_is_named_outside_of_its_folders
                     layering.only_owners_know_names_of_transports_and_variables_of_schedulers
                     PROPERTIES LABELS unit TIMEOUT 60 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
