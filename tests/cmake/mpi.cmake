# The transport mpi, and starting under MPI's launchers, with every MPI that this machine has.
if(NOT TARGET horovodrun OR HVD_SANITIZE)  # MPI libraries are full of what sanitizers complain about
  return()
endif()
add_executable(mpi_conformance ${PROJECT_SOURCE_DIR}/tests/multiprocess/mpi_conformance.cpp
                               ${PROJECT_SOURCE_DIR}/tests/conformance/exercise.cpp)
target_include_directories(mpi_conformance PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/conformance)
target_link_libraries(mpi_conformance PRIVATE hvd_runtime GTest::gtest)

# Launchers by ABI; MPICH's and Open MPI's stand side by side on Debian under names of their own.
find_program(HVD_MPIEXEC_MPICH NAMES mpiexec.mpich mpiexec.hydra)
find_program(HVD_MPIEXEC_OPENMPI NAMES mpiexec.openmpi orterun)
set(mpiexec_mpich ${HVD_MPIEXEC_MPICH})
set(mpiexec_openmpi ${HVD_MPIEXEC_OPENMPI} --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1)

foreach(abi mpich openmpi)
  string(TOUPPER ${abi} upper)
  if(NOT TARGET horovod_mpi_${abi} OR NOT HVD_MPIEXEC_${upper})
    message(NOTICE "-- the transport mpi is not tested with ${abi}: its mpi.h or its mpiexec is missing")
    continue()
  endif()
  add_dependencies(mpi_conformance horovod_mpi_${abi})
  foreach(shape 2 1,2 2,2)
    string(REPLACE "," "_and_" name ${shape})
    math(EXPR ranks "0")
    string(REPLACE "," ";" nodes ${shape})
    foreach(node IN LISTS nodes)
      math(EXPR ranks "${ranks} + ${node}")
    endforeach()
    set(test mpi.conformance_over_${abi}_with_ranks_on_nodes_${name})
    add_test(NAME ${test} COMMAND ${mpiexec_${abi}} -n ${ranks} $<TARGET_FILE:mpi_conformance> ${shape}
                                  --gtest_filter=-*_slow)
    set_tests_properties(${test} PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2 ENVIRONMENT HOROVOD_MPI=${abi})
  endforeach()
  add_test(NAME mpi.giant_messages_over_${abi} COMMAND ${mpiexec_${abi}} -n 2 $<TARGET_FILE:mpi_conformance> 2
                                                       --gtest_filter=*_slow)
  set_tests_properties(mpi.giant_messages_over_${abi} PROPERTIES LABELS slow TIMEOUT 300 PROCESSORS 2
                       ENVIRONMENT HOROVOD_MPI=${abi})
endforeach()
