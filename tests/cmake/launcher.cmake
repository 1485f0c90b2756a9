# Tests of horovodrun: its parts by themselves, and the whole program with real processes.
if(NOT TARGET horovodrun OR HVD_SANITIZE STREQUAL "thread")  # horovodrun has one thread
  return()
endif()
hvd_test(launcher LABEL unit USES hvd_launcher)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(launcher_tests ${PROJECT_SOURCE_DIR}/tests/multiprocess)
set(launcher_environment HOROVODRUN=$<TARGET_FILE:horovodrun> HVD_BOOTSTRAP_RANK=$<TARGET_FILE:bootstrap_rank>
    PYTHONDONTWRITEBYTECODE=1)

add_executable(launcher_store_client ${launcher_tests}/launcher_store_client.cpp)
target_link_libraries(launcher_store_client PRIVATE hvd_bootstrap)
list(APPEND launcher_environment HVD_STORE_CLIENT=$<TARGET_FILE:launcher_store_client>)
if(TARGET horovod_pmix)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(launcher_pmix REQUIRED IMPORTED_TARGET pmix)
  add_executable(launcher_pmix_client ${launcher_tests}/launcher_pmix_client.cpp)
  target_link_libraries(launcher_pmix_client PRIVATE PkgConfig::launcher_pmix)
  list(APPEND launcher_environment HVD_PMIX_CLIENT=$<TARGET_FILE:launcher_pmix_client>)
endif()

# Adds one CTest entry for each test of a Python file, under the name of the test.
function(hvd_launcher_tests file)
  file(STRINGS ${launcher_tests}/${file}.py lines REGEX "^(class |    def test_)")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${launcher_tests}/${file}.py)
  foreach(line IN LISTS lines)
    if(line MATCHES "^class ([A-Za-z]+)")
      set(current ${CMAKE_MATCH_1})
    elseif(line MATCHES "def (test_([a-z0-9_]+))")
      set(name launcher.${current}.${CMAKE_MATCH_2})
      add_test(NAME ${name} COMMAND Python3::Interpreter ${launcher_tests}/${file}.py ${current}.${CMAKE_MATCH_1})
      set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 300
                           ENVIRONMENT "${launcher_environment};HVD_ROUNDS=${kill_rounds}")
      if(current STREQUAL Ends)
        add_test(NAME soak.${name} COMMAND Python3::Interpreter ${launcher_tests}/${file}.py
                 ${current}.${CMAKE_MATCH_1})
        set_tests_properties(soak.${name} PROPERTIES LABELS soak TIMEOUT 1200 ENVIRONMENT
                             "${launcher_environment};HVD_ROUNDS=50")
      endif()
    endif()
  endforeach()
endfunction()
hvd_launcher_tests(launcher_manual)
hvd_launcher_tests(launcher_support)
if(NOT HVD_TEST_FOLDERS)  # of the builds of tests/run, dev has these
  hvd_launcher_tests(launcher_keeper)
  hvd_launcher_tests(launcher_output)
endif()
# Sanitizer builds leave these tests out: they run the same code as the tests above, in many more processes. The first
# file also loads the library into Python, which works only without a sanitizer.
if(NOT HVD_SANITIZE)
  hvd_launcher_tests(launcher_configuration)
  hvd_launcher_tests(launcher_ends)
  hvd_launcher_tests(launcher_starts)
  hvd_launcher_tests(launcher_schedulers)
endif()
