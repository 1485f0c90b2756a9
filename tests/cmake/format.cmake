if(HVD_SANITIZE)
  return()  # this test checks files that are the same in every build
endif()
# Checks that clang-format 14 would change no C or C++ file. Without clang-format the test fails and says what to load.
add_test(NAME format.of_every_source_file_is_clang_formats COMMAND ${PROJECT_SOURCE_DIR}/tests/layering/format)
set_tests_properties(format.of_every_source_file_is_clang_formats PROPERTIES LABELS unit TIMEOUT 120)
