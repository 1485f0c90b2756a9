# The options with which every target of the project is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Results must not depend on whether the compiler fuses a multiplication with an addition.
add_compile_options(-ffp-contract=off -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Avoids false warnings about "text" + std::to_string(n): GCC bug 105651
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
option(HVD_WARNINGS_ARE_ERRORS "Fail on warnings" ${PROJECT_IS_TOP_LEVEL})
if(HVD_WARNINGS_ARE_ERRORS)
  add_compile_options(-Werror)
endif()
if(HVD_SANITIZE)
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HVD_SANITIZE})
  if(HVD_SANITIZE MATCHES "address" AND HVD_SANITIZE MATCHES "undefined")
    # These checks of each pointer take long to compile. The address sanitizer notices an access by a null pointer, too.
    add_compile_options(-fno-sanitize=null,object-size)
  endif()
  if(HVD_SANITIZE MATCHES "address")
    # The address sanitizer describes each global variable. A position-independent executable has to relocate these
    # descriptors when it starts: a tenth of a second in each of two thousand tests.
    string(APPEND CMAKE_EXE_LINKER_FLAGS " -no-pie")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Avoids false warnings in the standard library's own code (std::regex) under the address sanitizer.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  if(HVD_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns that the sanitizer does not model fences. Our fences order only atomics, so they hide no race from it.
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(CMAKE_UNITY_BUILD)  # tests/run and wheels build so; other builds warn about each file
  if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)  # two halves of a layer take a third longer than the layer
  endif()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()

# Clones of the tree share compiled files: ccache uses paths that are relative to the tree. A debugger may therefore
# show the file of another clone, which had the same text when it was compiled.
find_program(HVD_CCACHE ccache)
if(HVD_CCACHE)
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${HVD_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()
find_package(Threads REQUIRED)
