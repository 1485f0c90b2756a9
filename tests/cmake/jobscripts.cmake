# Tests of job scripts: their parts by themselves, and the scripts that horovodrun writes.
if(NOT TARGET horovodrun OR HVD_SANITIZE STREQUAL "thread")  # horovodrun has one thread
  return()
endif()
hvd_test(jobscripts LABEL unit USES hvd_jobscripts)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(scripts_test ${PROJECT_SOURCE_DIR}/tests/jobscripts/scripts_test.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${scripts_test})
file(STRINGS ${scripts_test} lines REGEX "^    def test_")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^    def test_([a-z0-9_]+).*" "\\1" test "${line}")
  add_test(NAME jobscripts.${test} COMMAND Python3::Interpreter ${scripts_test} JobScripts.test_${test})
  set_tests_properties(jobscripts.${test} PROPERTIES LABELS unit TIMEOUT 60
                       ENVIRONMENT "HOROVODRUN=$<TARGET_FILE:horovodrun>;PYTHONDONTWRITEBYTECODE=1")
endforeach()
