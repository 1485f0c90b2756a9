# Random programs of collectives (tests/programs). Their ranks are threads, processes under horovodrun, or processes on
# virtual nodes.
if(NOT TARGET horovod)
  return()
endif()
set(programs ${PROJECT_SOURCE_DIR}/tests/programs)
set(program_sources ${programs}/generator.cpp ${programs}/numbers.cpp ${programs}/player.cpp ${programs}/text.cpp
                    ${programs}/thread.cpp)

# The C functions are compiled into this program, so that they work on runtimes that the test has made.
add_executable(test_programs ${programs}/programs_test.cpp ${programs}/sets_test.cpp ${program_sources} ${api_sources})
target_include_directories(test_programs PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src/api)
target_link_libraries(test_programs PRIVATE hvd_runtime hvd_schedulers GTest::gtest GTest::gtest_main)
target_compile_definitions(test_programs PRIVATE HVD_VERSION="${HVD_RELEASE}")
target_link_options(test_programs PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/api/horovod.map)
set(options TEST_PREFIX "programs." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)
gtest_discover_tests(test_programs ${options} TEST_FILTER "-*_slow" PROPERTIES LABELS unit TIMEOUT 300 COST 30
                     ${hvd_computes})
gtest_discover_tests(test_programs ${options} TEST_FILTER "*_slow" PROPERTIES LABELS soak TIMEOUT 3600 ${hvd_computes})

# Here the ranks are processes. "horovodrun -np N programs_rank FIRST COUNT" repeats such a test by hand.
if(TARGET horovodrun)
  add_executable(programs_rank ${programs}/programs_rank.cpp ${program_sources}
                               ${PROJECT_SOURCE_DIR}/tests/bootstrap/sanitizers_and_libpmix.cpp)
  target_include_directories(programs_rank PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(programs_rank PRIVATE horovod hvd_base)
  foreach(ranks 2 3 4)
    add_test(NAME programs.of_${ranks}_processes COMMAND horovodrun -np ${ranks} $<TARGET_FILE:programs_rank> 1 3)
    set_tests_properties(programs.of_${ranks}_processes PROPERTIES LABELS ranks TIMEOUT 300)
  endforeach()
  foreach(ranks RANGE 1 6)
    add_test(NAME soak.programs.of_${ranks}_processes
             COMMAND horovodrun -np ${ranks} $<TARGET_FILE:programs_rank> 100 34)
    set_tests_properties(soak.programs.of_${ranks}_processes PROPERTIES LABELS soak TIMEOUT 3600)
  endforeach()
  if(NOT HVD_SANITIZE)
    set(on_nodes ${PROJECT_SOURCE_DIR}/tests/cluster/programs_test ${PROJECT_BINARY_DIR})
    add_test(NAME cluster.programs_on_two_nodes COMMAND ${on_nodes} 1)
    set_tests_properties(cluster.programs_on_two_nodes PROPERTIES LABELS cluster TIMEOUT 600 SKIP_RETURN_CODE 77)
    add_test(NAME soak.cluster.programs_on_two_nodes COMMAND ${on_nodes} 13)
    set_tests_properties(soak.cluster.programs_on_two_nodes PROPERTIES LABELS soak TIMEOUT 3600 SKIP_RETURN_CODE 77)
  endif()
endif()
