# Tests of job scripts: their parts by themselves, and the scripts that horovodrun writes.
if(NOT TARGET horovodrun OR HVD_SANITIZE STREQUAL "thread")  # horovodrun has one thread
  return()
endif()
hvd_test(jobscripts LABEL unit USES hvd_jobscripts)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(test examples_are_what_is_written_today every_example_is_clean_to_shellcheck
             words_of_a_command_arrive_as_they_were_given ranks_of_srun_get_all_variables_and_a_way_to_meet
             what_a_job_cannot_use_is_refused
             a_warned_job_goes_back_into_the_queue a_job_that_the_site_does_not_put_back_ends_with_75)
  add_test(NAME jobscripts.${test} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/jobscripts/scripts_test.py
           JobScripts.test_${test})
  set_tests_properties(jobscripts.${test} PROPERTIES LABELS unit TIMEOUT 60
                       ENVIRONMENT "HOROVODRUN=$<TARGET_FILE:horovodrun>;PYTHONDONTWRITEBYTECODE=1")
endforeach()
