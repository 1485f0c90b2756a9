# The runtime with real processes under horovodrun: what the counters claim, and what becomes of a job whose ranks die.
if(NOT TARGET horovodrun OR NOT TARGET horovod)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(runtime_programs ${PROJECT_SOURCE_DIR}/tests/multiprocess)

# Sanitizers bring an allocator of their own; there the claim is not about ours.
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

# A program that leaves by _exit has not joined its threads.
set(runtime_sanitizer TSAN_OPTIONS=report_thread_leaks=0)
add_executable(runtime_victim ${runtime_programs}/runtime_victim.cpp)
target_link_libraries(runtime_victim PRIVATE horovod)
file(STRINGS ${runtime_programs}/runtime_deaths.py lines REGEX "^(class |    def test_)")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${runtime_programs}/runtime_deaths.py)
foreach(line IN LISTS lines)
  if(line MATCHES "^class ([A-Za-z]+)")
    set(current ${CMAKE_MATCH_1})
  elseif(line MATCHES "def (test_([a-z0-9_]+))")
    foreach(kind ranks soak)
      set(name runtime.${current}.${CMAKE_MATCH_2})
      set(rounds 5)
      set(limit 180)
      if(kind STREQUAL soak)
        set(name soak.${name})
        set(rounds 50)
        set(limit 1200)
      endif()
      add_test(NAME ${name} COMMAND Python3::Interpreter ${runtime_programs}/runtime_deaths.py ${current}.${CMAKE_MATCH_1})
      set_tests_properties(${name} PROPERTIES LABELS ${kind} TIMEOUT ${limit}
        ENVIRONMENT "HOROVODRUN=$<TARGET_FILE:horovodrun>;HVD_VICTIM=$<TARGET_FILE:runtime_victim>;HVD_ROUNDS=${rounds};PYTHONDONTWRITEBYTECODE=1;${runtime_sanitizer}")
    endforeach()
  endif()
endforeach()
