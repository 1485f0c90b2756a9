# Tests of the runtime in processes under horovodrun: the claims of the counters, and what becomes of a job whose ranks
# die.
if(NOT TARGET horovodrun OR NOT TARGET horovod)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(runtime_programs ${PROJECT_SOURCE_DIR}/tests/multiprocess)

# A sanitizer has an allocator of its own, so that under it this test would say nothing about our allocations.
if(NOT HVD_SANITIZE)
  add_executable(runtime_steady ${runtime_programs}/runtime_steady.cpp)
  target_link_libraries(runtime_steady PRIVATE horovod)
  foreach(ranks 1 2 4)
    add_test(NAME runtime.steady_state_allocates_nothing_and_idle_is_idle_${ranks}_ranks
             COMMAND horovodrun -np ${ranks} $<TARGET_FILE:runtime_steady>)
    set_tests_properties(runtime.steady_state_allocates_nothing_and_idle_is_idle_${ranks}_ranks
                         PROPERTIES LABELS ranks TIMEOUT 120 RUN_SERIAL ON)
  endforeach()
endif()

# A rank may start a job of its own with any launcher. A child of a rank that no launcher started is not a rank.
add_executable(runtime_nested ${runtime_programs}/runtime_nested.cpp)
target_link_libraries(runtime_nested PRIVATE horovod)
set(nested $<TARGET_FILE:runtime_nested>)
add_test(NAME runtime.the_time_to_start_is_one_line COMMAND horovodrun -np 2 --verbose ${nested} 2)
set_tests_properties(runtime.the_time_to_start_is_one_line PROPERTIES LABELS ranks TIMEOUT 180 PASS_REGULAR_EXPRESSION
  "started in [0-9.]+ s: launch [0-9.]+, imports [0-9.]+ .slowest: rank [01] on .*, bootstrap [0-9.]+, MPI .*, links")
set(launcher_run horovodrun -np)
set(launchers run)
if(NOT HVD_SANITIZE)
  find_program(HVD_MPIEXEC_MPICH NAMES mpiexec.mpich mpiexec.hydra)
  find_program(HVD_MPIEXEC_OPENMPI NAMES mpiexec.openmpi orterun)
  if(HVD_MPIEXEC_MPICH)
    list(APPEND launchers hydra)
    set(launcher_hydra ${HVD_MPIEXEC_MPICH} -n)
  endif()
  if(HVD_MPIEXEC_OPENMPI)
    list(APPEND launchers orterun)
    set(launcher_orterun ${HVD_MPIEXEC_OPENMPI} --allow-run-as-root --oversubscribe -n)
  endif()
endif()
# Ranks find their GPU and processors by themselves, whatever started them.
add_executable(placement_rank ${runtime_programs}/placement_rank.cpp)
target_link_libraries(placement_rank PRIVATE horovod)
# hwloc's components leave memory behind when they are unloaded, so sanitizer builds leave these tests out.
if(NOT HVD_SANITIZE)
  foreach(launcher IN LISTS launchers)
    set(name runtime.ranks_of_${launcher}_bind_themselves_near_to_their_gpus)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/gpus_of_${launcher})
    add_test(NAME ${name} COMMAND ${launcher_${launcher}} 2 $<TARGET_FILE:placement_rank> ${folder} 2)
    set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 180)
  endforeach()
endif()
foreach(outer IN LISTS launchers)
  set(name runtime.children_of_a_rank_of_${outer}_are_no_ranks)
  add_test(NAME ${name} COMMAND ${launcher_${outer}} 2 ${nested} 2 inside ${nested} refused)
  set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 180)
  foreach(inner IN LISTS launchers)
    if(outer STREQUAL orterun AND inner STREQUAL orterun)
      continue() # orterun says that it "does not support recursive calls"
    endif()
    foreach(when inside outside)
      set(name runtime.a_rank_of_${outer}_starts_a_job_by_${inner}_${when}_its_own)
      set(command ${launcher_${inner}})
      if(inner STREQUAL run)
        set(command $<TARGET_FILE:horovodrun> -np)
      endif()
      add_test(NAME ${name} COMMAND ${launcher_${outer}} 2 ${nested} 2 ${when} ${command} 3 ${nested} 3)
      set_tests_properties(${name} PROPERTIES LABELS ranks TIMEOUT 180)
    endforeach()
  endforeach()
endforeach()

if(NOT HVD_SANITIZE)
  # In its own space of process numbers the child sees another process 1 than its rank sees. Where the user may not make
  # such a space, the test passes without having tested anything.
  string(CONCAT in_another_space "unshare -pf --mount-proc true || exit 0; "
                                 "exec ${nested} 2 inside unshare -pf --mount-proc ${nested} refused")
  add_test(NAME runtime.children_of_a_rank_in_another_space_of_process_numbers_are_no_ranks
           COMMAND horovodrun -np 2 sh -c "${in_another_space}")
  set_tests_properties(runtime.children_of_a_rank_in_another_space_of_process_numbers_are_no_ranks
                       PROPERTIES LABELS ranks TIMEOUT 180)
endif()

# Where the user may not make namespaces, these two tests pass without having tested anything.
add_test(NAME runtime.a_job_on_one_node_needs_no_network_address
         COMMAND sh -c "unshare -rn true || exit 0; exec unshare -rn $<TARGET_FILE:horovodrun> -np 2 ${nested} 2")
add_test(NAME runtime.ranks_of_one_node_may_have_a_space_of_process_numbers_each
         COMMAND sh -c "unshare -rpf true || exit 0; exec $<TARGET_FILE:horovodrun> -np 2 unshare -rpf ${nested} 2")
set_tests_properties(runtime.a_job_on_one_node_needs_no_network_address
                     runtime.ranks_of_one_node_may_have_a_space_of_process_numbers_each
                     PROPERTIES LABELS ranks TIMEOUT 180 ENVIRONMENT HOROVOD_BOOTSTRAP=environment)

if(launcher_orterun)
  # orterun by itself refuses to start inside a rank that another orterun started.
  add_test(NAME runtime.a_rank_of_orterun_starts_a_job_by_horovodrun_over_orterun
           COMMAND ${launcher_orterun} 2 ${nested} 2 inside $<TARGET_FILE:horovodrun> --mpi --mpi-args=--oversubscribe
           -np 3 ${nested} 3)
  set_tests_properties(runtime.a_rank_of_orterun_starts_a_job_by_horovodrun_over_orterun PROPERTIES
                       LABELS ranks TIMEOUT 180 ENVIRONMENT HOROVOD_MPIEXEC=${HVD_MPIEXEC_OPENMPI})
endif()

# A program that ends by _exit does not join its threads; the sanitizer must not report these.
set(runtime_sanitizer TSAN_OPTIONS=report_thread_leaks=0)
if(TARGET horovod_pmix)
  list(APPEND runtime_sanitizer HVD_HAS_PMIX=1)
endif()
add_executable(runtime_victim ${runtime_programs}/runtime_victim.cpp)
target_link_libraries(runtime_victim PRIVATE horovod)
target_include_directories(runtime_victim PRIVATE ${PROJECT_SOURCE_DIR}/tests)
file(STRINGS ${runtime_programs}/runtime_deaths.py lines REGEX "^(class |    def test_)")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${runtime_programs}/runtime_deaths.py)
set(deaths_environment HOROVODRUN=$<TARGET_FILE:horovodrun> HVD_VICTIM=$<TARGET_FILE:runtime_victim>
    PYTHONDONTWRITEBYTECODE=1 ${runtime_sanitizer})
# How a process has ended is the launcher's affair, which the dev build shows. The other builds, if tests/run makes all
# three, only run what ends or stops a rank while the threads of others are at work; release, only what ends it.
set(every_kind ON)
if(HVD_TEST_FOLDERS OR HVD_HOROVODRUN)
  set(every_kind OFF)
endif()
foreach(line IN LISTS lines)
  if(line MATCHES "^class ([A-Za-z]+)")
    set(current ${CMAKE_MATCH_1})
  elseif(NOT every_kind AND line MATCHES "_(abort|exit0|exit7)\\(")
    continue()
  elseif(HVD_TEST_FOLDERS AND (current STREQUAL Stops OR line MATCHES "_stop\\("))
    continue()
  elseif(line MATCHES "def (test_([a-z0-9_]+))")
    set(cost 0)
    if(CMAKE_MATCH_2 MATCHES "_stop$|that_has_not_shut_down")
      set(cost 20)
    endif()
    string(REGEX MATCH "(test_([a-z0-9_]+))" found "${line}")
    foreach(kind ranks soak)
      set(name runtime.${current}.${CMAKE_MATCH_2})
      set(rounds ${kill_rounds})
      set(limit 180)
      if(kind STREQUAL soak)
        set(name soak.${name})
        set(rounds 50)
        set(limit 1200)
      endif()
      add_test(NAME ${name} COMMAND Python3::Interpreter ${runtime_programs}/runtime_deaths.py
               ${current}.${CMAKE_MATCH_1})
      set_tests_properties(${name} PROPERTIES LABELS ${kind} TIMEOUT ${limit}
        COST ${cost} ENVIRONMENT "HVD_ROUNDS=${rounds};${deaths_environment}")
    endforeach()
  endif()
endforeach()
