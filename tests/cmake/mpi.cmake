# Tests of the transport mpi and of starts under MPI's launchers, with every MPI that this machine has.
if(NOT TARGET horovodrun OR HVD_SANITIZE)  # sanitizers complain about MPI libraries in many places
  return()
endif()
add_executable(mpi_conformance ${PROJECT_SOURCE_DIR}/tests/multiprocess/mpi_conformance.cpp
                               ${PROJECT_SOURCE_DIR}/tests/conformance/exercise.cpp)
target_include_directories(mpi_conformance PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/conformance)
target_link_libraries(mpi_conformance PRIVATE hvd_runtime GTest::gtest)

# The launcher of each ABI. Debian gives the launchers of MPICH and Open MPI different names, so that both can be there.
find_program(HVD_MPIEXEC_MPICH NAMES mpiexec.mpich mpiexec.hydra)
find_program(HVD_MPIEXEC_OPENMPI NAMES mpiexec.openmpi orterun)
set(mpiexec_mpich ${HVD_MPIEXEC_MPICH})
set(mpiexec_openmpi ${HVD_MPIEXEC_OPENMPI} --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1)

# The MPI of the standard ABI is the one whose mpicc_abi was given to the build. The loader does not search the folder
# of its libraries.
set(environment_abi "")
find_program(HVD_MPICC_ABI mpicc_abi)
if(HVD_MPICC_ABI)
  get_filename_component(folder_abi ${HVD_MPICC_ABI} DIRECTORY)
  find_program(HVD_MPIEXEC_ABI NAMES mpiexec HINTS ${folder_abi} NO_DEFAULT_PATH)
  set(mpiexec_abi ${HVD_MPIEXEC_ABI})
  set(environment_abi LD_LIBRARY_PATH=${folder_abi}/../lib)
  add_test(NAME mpi.our_header_of_the_standard_abi_says_what_that_of_an_mpi_says
           COMMAND ${PROJECT_SOURCE_DIR}/tests/native/standard_abi ${CMAKE_CXX_COMPILER} ${folder_abi}/../include)
  set_tests_properties(mpi.our_header_of_the_standard_abi_says_what_that_of_an_mpi_says PROPERTIES LABELS mpi)
endif()

set(package_mpich mpich)
set(package_openmpi ompi-c)
find_package(PkgConfig QUIET)
foreach(abi mpich openmpi abi)
  string(TOUPPER ${abi} upper)
  if(NOT TARGET horovod_mpi_${abi} OR NOT HVD_MPIEXEC_${upper})
    message(NOTICE "-- the transport mpi is not tested with ${abi}: its mpi.h or its mpiexec is missing")
    continue()
  endif()
  add_dependencies(mpi_conformance horovod_mpi_${abi})
  set(shapes 2 2,2)
  if(abi STREQUAL mpich)
    list(APPEND shapes 1,2)  # how ranks meet is the same over all of them
  endif()
  foreach(shape IN LISTS shapes)
    string(REPLACE "," "_and_" name ${shape})
    math(EXPR ranks "0")
    string(REPLACE "," ";" nodes ${shape})
    foreach(node IN LISTS nodes)
      math(EXPR ranks "${ranks} + ${node}")
    endforeach()
    set(test mpi.conformance_over_${abi}_with_ranks_on_nodes_${name})
    add_test(NAME ${test} COMMAND ${mpiexec_${abi}} -n ${ranks} $<TARGET_FILE:mpi_conformance> ${shape}
                                  --gtest_filter=-*_slow)
    # The ranks spin while they wait, so other tests beside them would take many times as long, and so would they.
    math(EXPR spinning "2 * ${ranks}")
    set_tests_properties(${test} PROPERTIES LABELS mpi TIMEOUT 240 PROCESSORS ${spinning}
                         ENVIRONMENT "HOROVOD_MPI=${abi};${environment_${abi}}")
  endforeach()
  # A program that is linked with an MPI and with our library.
  if(package_${abi})
    pkg_check_modules(members_${abi} QUIET IMPORTED_TARGET ${package_${abi}})
  endif()
  if(members_${abi}_FOUND AND TARGET horovod)
    add_executable(mpi_members_${abi} ${PROJECT_SOURCE_DIR}/tests/multiprocess/mpi_members.cpp)
    target_compile_definitions(mpi_members_${abi} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    target_link_libraries(mpi_members_${abi} PRIVATE horovod PkgConfig::members_${abi})
    add_dependencies(mpi_members_${abi} horovod_mpi_${abi})
    foreach(scene whole_world halves list_of_ranks refusals without_threads library_starts_it
            one_starts_it two_beside_a_third ends_mpi_first one_comes one_of_a_list_comes)
      set(test mpi.members_over_${abi}_${scene})
      set(ranks 2)
      if(scene MATCHES "halves|list")
        set(ranks 4)
      elseif(scene MATCHES "third")
        set(ranks 3)
      endif()
      add_test(NAME ${test} COMMAND ${mpiexec_${abi}} -n ${ranks} $<TARGET_FILE:mpi_members_${abi}> ${scene})
      set_tests_properties(${test} PROPERTIES LABELS mpi TIMEOUT 180 PROCESSORS 4)
    endforeach()
    set(members mpi.members_over_${abi})
    set_tests_properties(${members}_library_starts_it ${members}_two_beside_a_third PROPERTIES ENVIRONMENT
                                                                                               HOROVOD_MPI=${abi})
    set_tests_properties(${members}_one_comes ${members}_one_of_a_list_comes
                         PROPERTIES ENVIRONMENT HOROVOD_START_TIMEOUT=1 PASS_REGULAR_EXPRESSION
                                    "init said: not all processes of the job called.*then it said: an earlier hvd.init")
    add_test(NAME ${members}_alone COMMAND mpi_members_${abi} on_hosts)
    set_tests_properties(${members}_alone PROPERTIES LABELS mpi TIMEOUT 180 ENVIRONMENT HOROVOD_BOOTSTRAP=mpi)
    set_tests_properties(${members}_one_starts_it PROPERTIES ENVIRONMENT "HOROVOD_MPI=${abi};HOROVOD_BOOTSTRAP=mpi")
  endif()
  add_test(NAME mpi.giant_messages_over_${abi} COMMAND ${mpiexec_${abi}} -n 2 $<TARGET_FILE:mpi_conformance> 2
                                                       --gtest_filter=*_slow)
  set_tests_properties(mpi.giant_messages_over_${abi} PROPERTIES LABELS slow TIMEOUT 300 PROCESSORS 4
                       ENVIRONMENT "HOROVOD_MPI=${abi};${environment_${abi}}")
endforeach()

# A program below horovodrun that starts MPICH itself. This MPICH has no PMIx; horovodrun preloads the bridge for it.
if(TARGET mpi_members_mpich)
  set(below mpi.members_over_mpich_below_horovodrun)
  set(horovodrun $<TARGET_FILE:horovodrun> -np)
  add_test(NAME ${below}_find_each_other COMMAND ${horovodrun} 2 $<TARGET_FILE:mpi_members_mpich> on_hosts)
  add_test(NAME ${below}_and_a_script_find_each_other
           COMMAND ${horovodrun} 2 sh -c "env true && exec $<TARGET_FILE:mpi_members_mpich> on_hosts")
  set(member $<TARGET_FILE:mpi_members_mpich>)
  set(two "${member} only_mpi_on_hosts && ${member} only_mpi_on_hosts")
  add_test(NAME ${below}_find_each_other_one_program_after_the_other
           COMMAND ${horovodrun} 2 sh -c "${two} && exec ${member} on_hosts")
  add_test(NAME ${below}_find_each_other_over_its_store # the job is started as on a machine without PMIx
           COMMAND ${horovodrun} 2 env -u HOROVOD_BOOTSTRAP $<TARGET_FILE:mpi_members_mpich> on_hosts)
  add_test(NAME ${below}_are_started_by_the_library
           COMMAND ${horovodrun} 2 $<TARGET_FILE:mpi_members_mpich> library_starts_it)
  add_test(NAME ${below}_are_one COMMAND ${horovodrun} 1 $<TARGET_FILE:mpi_members_mpich> on_hosts)
  add_test(NAME ${below}_are_worlds_of_one_without_the_bridge
           COMMAND ${horovodrun} 2 $<TARGET_FILE:mpi_members_mpich> on_hosts)
  foreach(test find_each_other and_a_script_find_each_other find_each_other_one_program_after_the_other
          find_each_other_over_its_store are_started_by_the_library are_one are_worlds_of_one_without_the_bridge)
    set_tests_properties(${below}_${test} PROPERTIES LABELS mpi TIMEOUT 180 PROCESSORS 4 ENVIRONMENT
                                                     HVD_HOSTS=localhost,localhost)
  endforeach()
  set_tests_properties(${below}_find_each_other_over_its_store PROPERTIES ENVIRONMENT
                       "HVD_HOSTS=localhost,localhost;HOROVOD_BOOTSTRAP=environment")
  set_tests_properties(${below}_are_started_by_the_library PROPERTIES ENVIRONMENT HOROVOD_MPI=mpich)
  set_tests_properties(${below}_are_one PROPERTIES ENVIRONMENT HVD_HOSTS=localhost)
  set_tests_properties(${below}_are_worlds_of_one_without_the_bridge PROPERTIES
    ENVIRONMENT "HVD_HOSTS=localhost,localhost;HOROVOD_PMI_BRIDGE=0" PASS_REGULAR_EXPRESSION
    "size of MPI_COMM_WORLD: expected 2.000000, found 1.000000")
  # a rank that cannot find the others goes on alone only if it may, in the words of a flag
  set(lost env HOROVOD_RANK=0 HOROVOD_SIZE=2 HOROVOD_LOCAL_STORE=/none LD_PRELOAD=$<TARGET_FILE:horovod_pmi_bridge>)
  foreach(word 0 off on)
    add_test(NAME ${below}_that_is_lost_asks_whether_it_may_be_alone_${word}
             COMMAND ${lost} HOROVOD_ALLOW_SINGLETON=${word} $<TARGET_FILE:mpi_members_mpich> on_hosts)
    set(told "MPI cannot find the other ranks")
    if(word STREQUAL on)
      set(told "size of MPI_COMM_WORLD: expected 2.000000, found 1.000000")
    endif()
    set_tests_properties(${below}_that_is_lost_asks_whether_it_may_be_alone_${word} PROPERTIES LABELS mpi TIMEOUT 180
                         ENVIRONMENT HVD_HOSTS=localhost,localhost PASS_REGULAR_EXPRESSION "${told}")
  endforeach()
  add_dependencies(mpi_members_mpich horovodrun horovod_pmi_bridge horovod_bridge)
endif()
