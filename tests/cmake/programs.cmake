# Random programs of collectives (tests/programs): ranks as threads, as processes under horovodrun, and on virtual
# nodes.
if(NOT TARGET horovod)
  return()
endif()
set(programs ${PROJECT_SOURCE_DIR}/tests/programs)
set(program_sources ${programs}/generator.cpp ${programs}/numbers.cpp ${programs}/player.cpp ${programs}/text.cpp
                    ${programs}/thread.cpp)

# The C functions are compiled into this one, so that they work on runtimes that the test has made.
add_executable(test_programs ${programs}/programs_test.cpp ${program_sources} ${PROJECT_SOURCE_DIR}/src/api/horovod.cpp)
target_include_directories(test_programs PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src/api)
target_link_libraries(test_programs PRIVATE hvd_runtime GTest::gtest GTest::gtest_main)
target_compile_definitions(test_programs PRIVATE HVD_VERSION="${PROJECT_VERSION}")
target_link_options(test_programs PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/api/horovod.map)
set(options TEST_PREFIX "programs." NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)
gtest_discover_tests(test_programs ${options} TEST_FILTER "-*_slow" PROPERTIES LABELS unit TIMEOUT 300)
gtest_discover_tests(test_programs ${options} TEST_FILTER "*_slow" PROPERTIES LABELS soak TIMEOUT 3600)
