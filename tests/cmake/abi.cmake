# Programs that were built against an older release go on running. The test program is compiled against the header of
# the first release in tests/fixtures/headers, linked with a stand-in library that has the names of that header and no
# symbol versions, and runs with today's library. Until there is a release, the header is today's.
if(TARGET horovod AND NOT HVD_SANITIZE)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fixtures/headers/*/horovod.h)
  list(APPEND headers ${PROJECT_SOURCE_DIR}/src/api/horovod.h)
  list(GET headers 0 old_header)
  get_filename_component(old_folder ${old_header} DIRECTORY)
  file(STRINGS ${old_header} declarations REGEX "^HVD_API ")
  set(definitions "")
  foreach(declaration IN LISTS declarations)
    string(REGEX MATCH "(hvd_[a-z_]+)\\(" call "${declaration}")
    string(APPEND definitions "void ${CMAKE_MATCH_1}(void) {}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/abi/names.c CONTENT "${definitions}")
  add_library(abi_names SHARED ${CMAKE_CURRENT_BINARY_DIR}/abi/names.c)
  set_target_properties(abi_names PROPERTIES OUTPUT_NAME horovod SOVERSION 1 C_VISIBILITY_PRESET default
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/abi)
  add_executable(abi_program ${PROJECT_SOURCE_DIR}/tests/fixtures/abi/program.c)
  target_include_directories(abi_program PRIVATE ${old_folder})
  target_link_libraries(abi_program PRIVATE abi_names)
  set_target_properties(abi_program PROPERTIES SKIP_BUILD_RPATH ON)
  add_test(NAME abi.a_program_that_knows_no_symbol_versions_runs COMMAND abi_program)
  set_tests_properties(abi.a_program_that_knows_no_symbol_versions_runs PROPERTIES LABELS unit TIMEOUT 60
                       ENVIRONMENT LD_LIBRARY_PATH=$<TARGET_FILE_DIR:horovod>
                       PASS_REGULAR_EXPRESSION "a program of the first header runs")
endif()
