# Tests of real launchers on virtual nodes (tests/cluster/nodes). They need root and a machine with namespaces; on other
# machines one line says what was not run.
if(NOT TARGET bootstrap_rank OR HVD_SANITIZE)
  return()
endif()
set(cluster ${PROJECT_SOURCE_DIR}/tests/cluster)
add_executable(rendezvous_launcher ${cluster}/rendezvous_launcher.cpp)
target_link_libraries(rendezvous_launcher PRIVATE hvd_bootstrap)

add_test(NAME cluster.ranks_of_every_launcher_meet_on_every_layout
         COMMAND ${cluster}/matrix --build ${PROJECT_BINARY_DIR})
add_test(NAME cluster.every_program_of_every_launcher_on_every_layout
         COMMAND ${cluster}/matrix --all --build ${PROJECT_BINARY_DIR})
add_test(NAME cluster.nodes_come_and_go_and_leave_nothing COMMAND ${cluster}/nodes_test)
add_test(NAME cluster.one_of_several_that_finds_no_other_is_refused COMMAND ${cluster}/guard_test ${PROJECT_BINARY_DIR})
add_test(NAME cluster.ranks_of_slurm_meet_in_a_folder_and_leave_nothing_in_it
         COMMAND ${cluster}/slurm_folder_test ${PROJECT_BINARY_DIR})
add_test(NAME cluster.job_scripts_are_taken_by_sbatch_and_run COMMAND ${cluster}/job_scripts_test ${PROJECT_BINARY_DIR})
set(horovodrun_tests "")
foreach(classes Ranks,Hosts Ends WithoutANode InAnAllocationOfSlurm CancelledInSlurm WithMpi)
  string(REPLACE "," "_and_" name ${classes})
  string(REPLACE "," ";" classes ${classes})
  add_test(NAME cluster.horovodrun.${name} COMMAND ${cluster}/horovodrun_test.py ${PROJECT_BINARY_DIR} ${classes})
  set_tests_properties(cluster.horovodrun.${name} PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  list(APPEND horovodrun_tests cluster.horovodrun.${name})
endforeach()
add_test(NAME cluster.an_environment_is_staged_on_all_nodes COMMAND ${cluster}/staging_test.py ${PROJECT_BINARY_DIR})
set_tests_properties(cluster.an_environment_is_staged_on_all_nodes PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
list(APPEND horovodrun_tests cluster.an_environment_is_staged_on_all_nodes)
add_test(NAME site.schedulers_over_virtual_nodes COMMAND ${cluster}/schedulers_test.py ${PROJECT_BINARY_DIR})
set_tests_properties(site.schedulers_over_virtual_nodes PROPERTIES LABELS site TIMEOUT 600 SKIP_RETURN_CODE 77
                     ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
add_test(NAME site.examples_of_job_scripts_for_lsf_are_taken_by_bsub_and_run
         COMMAND ${cluster}/lsf_job_scripts_test.py ${PROJECT_BINARY_DIR})
set_tests_properties(site.examples_of_job_scripts_for_lsf_are_taken_by_bsub_and_run
                     PROPERTIES LABELS site TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
foreach(classes Faults,Jobs CleanRuns)
  string(REPLACE "," "_and_" name ${classes})
  string(REPLACE "," ";" classes ${classes})
  add_test(NAME site.preflight.${name} COMMAND ${cluster}/preflight_test.py ${PROJECT_BINARY_DIR} ${classes})
  set_tests_properties(site.preflight.${name} PROPERTIES LABELS site TIMEOUT 900 SKIP_RETURN_CODE 77
                       ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endforeach()
set(cluster_tests "")
if(TARGET horovod)
  foreach(count 1 20)
    set(name checkpoint.a_job_with_too_little_time_goes_on_under_slurm.${count}_times)
    add_test(NAME ${name} COMMAND ${cluster}/stops_test.py ${PROJECT_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES LABELS $<IF:$<EQUAL:${count},1>,checkpoint,soak> TIMEOUT 6000
                         SKIP_RETURN_CODE 77 ENVIRONMENT "RUNS=${count};PYTHONDONTWRITEBYTECODE=1")
  endforeach()
  add_test(NAME cluster.a_rank_that_dies_while_mpi_carries_the_data_is_named COMMAND ${cluster}/deaths_over_mpi
           ${PROJECT_BINARY_DIR})
  list(APPEND cluster_tests cluster.a_rank_that_dies_while_mpi_carries_the_data_is_named)
  add_test(NAME soak.cluster.a_rank_that_dies_while_mpi_carries_the_data_is_named
           COMMAND ${cluster}/deaths_over_mpi ${PROJECT_BINARY_DIR})
  set_tests_properties(soak.cluster.a_rank_that_dies_while_mpi_carries_the_data_is_named
                       PROPERTIES LABELS soak TIMEOUT 3000 SKIP_RETURN_CODE 77 ENVIRONMENT HVD_ROUNDS=50)
  add_executable(steps_rank ${cluster}/steps_rank.cpp)
  target_link_libraries(steps_rank PRIVATE horovod)
  add_test(NAME cluster.a_suspended_job_goes_on COMMAND ${cluster}/suspends_test.py ${PROJECT_BINARY_DIR})
  set_tests_properties(cluster.a_suspended_job_goes_on PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  list(APPEND cluster_tests cluster.a_suspended_job_goes_on)
  add_executable(elastic_rank ${cluster}/elastic_rank.cpp)
  target_link_libraries(elastic_rank PRIVATE horovod)
  foreach(classes Jobs MoreJobs InSlurm InBatchJobs)
    set(name cluster.elastic.${classes})
    add_test(NAME ${name} COMMAND ${cluster}/elastic_test.py ${PROJECT_BINARY_DIR} ${classes})
    set_tests_properties(${name} PROPERTIES LABELS $<IF:$<STREQUAL:${classes},Jobs>,cluster,elastic> TIMEOUT 600
                         SKIP_RETURN_CODE 77 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
  add_executable(frames_rank ${cluster}/frames_rank.cpp)
  target_link_libraries(frames_rank PRIVATE horovod)
  add_test(NAME cluster.nodes_send_at_most_three_messages_per_step_and_none_while_idle
           COMMAND ${cluster}/frames_test ${PROJECT_BINARY_DIR})
  add_test(NAME cluster.a_job_names_its_network_and_refuses_sockets_where_a_fabric_is_required
           COMMAND ${cluster}/networks_test ${PROJECT_BINARY_DIR})
  list(APPEND cluster_tests cluster.nodes_send_at_most_three_messages_per_step_and_none_while_idle
       cluster.a_job_names_its_network_and_refuses_sockets_where_a_fabric_is_required)
  if(TARGET checkpoint_rank)
    foreach(kind cluster soak)
      set(name cluster.a_job_goes_on_from_its_checkpoint_whatever_is_killed)
      set(rounds 7)
      set(limit 600)
      if(kind STREQUAL soak)
        set(name soak.${name})
        set(rounds 210)
        set(limit 3000)
      endif()
      add_test(NAME ${name} COMMAND ${cluster}/checkpoint_kills.py ${PROJECT_BINARY_DIR} Kills)
      set_tests_properties(${name} PROPERTIES LABELS ${kind} TIMEOUT ${limit} SKIP_RETURN_CODE 77
        ENVIRONMENT "HVD_ROUNDS=${rounds};PYTHONDONTWRITEBYTECODE=1")
    endforeach()
  endif()
  foreach(how asynchronous sharded)
    set(name checkpoint.a_training_goes_on_whatever_is_killed_in_${how}_writes)
    add_test(NAME ${name} COMMAND ${cluster}/checkpoint_kills.py ${PROJECT_BINARY_DIR}
                                  KillsOfPython.test_${how}_writes)
    set_tests_properties(${name} PROPERTIES LABELS checkpoint TIMEOUT 3000 SKIP_RETURN_CODE 77
                         ENVIRONMENT "HVD_ROUNDS=50;PYTHONDONTWRITEBYTECODE=1")
  endforeach()
  add_executable(partition_rank ${cluster}/partition_rank.cpp)
  target_link_libraries(partition_rank PRIVATE horovod)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME cluster.bad_luck_before_a_job_trains_is_named_and_strangers_do_no_harm
           COMMAND ${cluster}/bad_luck.py ${PROJECT_BINARY_DIR})
  set_tests_properties(cluster.bad_luck_before_a_job_trains_is_named_and_strangers_do_no_harm
                       PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  list(APPEND horovodrun_tests cluster.bad_luck_before_a_job_trains_is_named_and_strangers_do_no_harm)
  foreach(over agents_of_ours mpi slurm)
    foreach(kind cluster soak)
      set(name cluster.harm_at_any_moment_leaves_nothing.over_${over})
      set(rounds 3)
      set(limit 600)
      if(kind STREQUAL soak)
        set(name soak.${name})
        set(rounds 50)
        set(limit 3000)
      endif()
      add_test(NAME ${name} COMMAND ${cluster}/loops.py ${PROJECT_BINARY_DIR} Loops.test_over_${over})
      set_tests_properties(${name} PROPERTIES LABELS ${kind} TIMEOUT ${limit} SKIP_RETURN_CODE 77
        ENVIRONMENT "HVD_ROUNDS=${rounds};PYTHONDONTWRITEBYTECODE=1")
    endforeach()
  endforeach()
  foreach(phase agreement inside between shutdown)
    foreach(harm cut kill)
      foreach(kind cluster soak)
        set(name cluster.every_survivor_names_a_node_that_vanishes.${phase}_${harm})
        set(rounds 1)
        set(limit 600)
        if(kind STREQUAL soak)
          set(name soak.${name})
          set(rounds 50)
          set(limit 3000)
        endif()
        add_test(NAME ${name} COMMAND Python3::Interpreter ${cluster}/partitions.py Partitions.test_${phase}_${harm})
        set_tests_properties(${name} PROPERTIES LABELS ${kind} TIMEOUT ${limit} SKIP_RETURN_CODE 77
          ENVIRONMENT "HVD_BUILD=${PROJECT_BINARY_DIR};HVD_ROUNDS=${rounds};PYTHONDONTWRITEBYTECODE=1")
      endforeach()
    endforeach()
  endforeach()
endif()
set_tests_properties(${cluster_tests} cluster.ranks_of_every_launcher_meet_on_every_layout
                     cluster.nodes_come_and_go_and_leave_nothing
                     cluster.one_of_several_that_finds_no_other_is_refused
                     cluster.ranks_of_slurm_meet_in_a_folder_and_leave_nothing_in_it
                     cluster.job_scripts_are_taken_by_sbatch_and_run
                     ${horovodrun_tests}
                     PROPERTIES LABELS cluster TIMEOUT 600 SKIP_RETURN_CODE 77)
set_tests_properties(cluster.every_program_of_every_launcher_on_every_layout
                     PROPERTIES LABELS soak TIMEOUT 3600 SKIP_RETURN_CODE 77)
