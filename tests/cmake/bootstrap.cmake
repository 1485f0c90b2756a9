# Tests of the bootstraps in ranks that are processes, with the servers of the real horovodrun.
if(NOT TARGET horovodrun)
  return()
endif()
add_executable(bootstrap_rank ${PROJECT_SOURCE_DIR}/tests/multiprocess/bootstrap_rank.cpp
                              ${PROJECT_SOURCE_DIR}/tests/bootstrap/sanitizers_and_libpmix.cpp)
target_link_libraries(bootstrap_rank PRIVATE hvd_bootstrap)
set(rounds 100)
if(HVD_SANITIZE)
  set(rounds 20)
endif()
foreach(way environment pmix)
  if(way STREQUAL pmix AND NOT TARGET horovod_pmix)
    continue()
  endif()
  add_test(NAME ranks.meet_and_leave_again_and_again_by_${way}
           COMMAND horovodrun -np 4 $<TARGET_FILE:bootstrap_rank> ${way} ${rounds})
  set_tests_properties(ranks.meet_and_leave_again_and_again_by_${way} PROPERTIES
                       LABELS ranks TIMEOUT 300
                       # The thread sanitizer sees libpmix release locks, but does not see libpmix take them.
                       ENVIRONMENT "HOROVOD_BOOTSTRAP=${way};TSAN_OPTIONS=report_mutex_bugs=0")
endforeach()
