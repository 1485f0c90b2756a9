# Programs that were built against an older release go on running. The test program is linked with a stand-in library
# that has the names of that release (without symbol versions, if the release had none), and runs with today's library.
if(TARGET horovod AND NOT HVD_SANITIZE)
  set(old_header ${PROJECT_SOURCE_DIR}/tests/fixtures/headers/1.0/horovod.h)
  file(STRINGS ${old_header} declarations REGEX "^HVD_API ")
  set(definitions "")
  foreach(declaration IN LISTS declarations)
    string(REGEX MATCH "(hvd_[a-z_]+)\\(" call "${declaration}")
    string(APPEND definitions "void ${CMAKE_MATCH_1}(void) {}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/abi/names_1_0.c CONTENT "${definitions}")
  add_library(abi_names_1_0 SHARED ${CMAKE_CURRENT_BINARY_DIR}/abi/names_1_0.c)
  set_target_properties(abi_names_1_0 PROPERTIES OUTPUT_NAME horovod SOVERSION 1 C_VISIBILITY_PRESET default
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/abi)
  add_executable(abi_program_1_0 ${PROJECT_SOURCE_DIR}/tests/fixtures/abi/program_1_0.c)
  target_include_directories(abi_program_1_0 PRIVATE ${PROJECT_SOURCE_DIR}/tests/fixtures/headers/1.0)
  target_link_libraries(abi_program_1_0 PRIVATE abi_names_1_0)
  set_target_properties(abi_program_1_0 PROPERTIES SKIP_BUILD_RPATH ON)
  add_test(NAME abi.a_program_of_the_first_release_goes_on_running COMMAND abi_program_1_0)
  set_tests_properties(abi.a_program_of_the_first_release_goes_on_running PROPERTIES LABELS unit TIMEOUT 60
                       ENVIRONMENT LD_LIBRARY_PATH=$<TARGET_FILE_DIR:horovod>
                       PASS_REGULAR_EXPRESSION "a program of the first release runs")
endif()
