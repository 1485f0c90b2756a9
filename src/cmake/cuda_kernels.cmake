# The kernels for NVIDIA's GPUs as an image in an object: hvd_cuda_image, from devices/kernels. nvcc compiles them
# to PTX, ptxas assembles that for each chip. V100, which nvcc 13 has dropped, and chips to come get PTX that clang has
# made without any toolkit of CUDA; drivers from 11.8 on compile it when it is loaded. Either compiler is enough for all
# chips that it knows. No object is made by nvcc and nothing of CUDA is linked. Without both the image is empty.
set(HVD_CUDA_KERNELS AUTO CACHE STRING "Compile kernels for NVIDIA's GPUs: ON, OFF, or AUTO, where nvcc or clang is")
set_property(CACHE HVD_CUDA_KERNELS PROPERTY STRINGS AUTO ON OFF)
set(HVD_CUDA_CHIPS 75 80 86 89 90 100 120 CACHE STRING "The chips for which kernels are assembled")

set(kernels ${CMAKE_CURRENT_SOURCE_DIR}/devices/kernels)
set(image ${PROJECT_BINARY_DIR}/cuda_kernels)

if(HVD_CUDA_KERNELS STREQUAL "AUTO" AND HVD_SANITIZE)
  set(wanted OFF)  # sanitizers see nothing of them
else()
  set(wanted ${HVD_CUDA_KERNELS})
endif()
if(wanted)
  find_program(HVD_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin
               DOC "NVIDIA's compiler for CUDA")
  if(HVD_NVCC)
    file(REAL_PATH ${HVD_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH beside)
    find_program(HVD_PTXAS ptxas HINTS ${beside} DOC "NVIDIA's assembler")
    find_program(HVD_FATBINARY fatbinary HINTS ${beside} DOC "NVIDIA's program that joins images")
  endif()
  find_program(HVD_CLANG_FOR_PTX NAMES clang++-16 clang++-15 clang++-14 clang++
               DOC "The clang that makes PTX for V100")
endif()

# Sets `result` to the chips of HVD_CUDA_CHIPS that this nvcc knows.
function(hvd_known_chips result)
  execute_process(COMMAND ${HVD_NVCC} --list-gpu-code OUTPUT_VARIABLE codes COMMAND_ERROR_IS_FATAL ANY)
  set(known "")
  set(unknown "")
  foreach(chip IN LISTS HVD_CUDA_CHIPS)
    if(codes MATCHES "sm_${chip}\n")
      list(APPEND known ${chip})
    else()
      list(APPEND unknown ${chip})
    endif()
  endforeach()
  if(unknown)
    list(JOIN unknown ", " unknown)
    message(NOTICE "-- ${HVD_NVCC} does not know the chips ${unknown}: there the driver compiles the kernels when it "
                   "loads them")
  endif()
  set(${result} ${known} PARENT_SCOPE)
endfunction()

# Sets `result` to why these compilers cannot be used, or to nothing.
function(hvd_fault_of_nvcc result)
  set(${result} "nvcc, ptxas and fatbinary were not all found (CUDA_HOME names their folder)" PARENT_SCOPE)
  if(HVD_NVCC AND HVD_PTXAS AND HVD_FATBINARY)
    execute_process(COMMAND ${HVD_NVCC} --version OUTPUT_VARIABLE about ERROR_VARIABLE about)
    set(${result} "" PARENT_SCOPE)
    if(NOT about MATCHES "release ([0-9]+)" OR CMAKE_MATCH_1 LESS 12)
      set(${result} "${HVD_NVCC} is not of CUDA 12 or later, which C++20 needs" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets `result` to the command of a clang that compiles for V100, or to nothing.
function(hvd_clang_for_ptx result)
  set(command ${HVD_CLANG_FOR_PTX} -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70
              -Wno-unknown-cuda-version -std=c++20 -O3 -ffp-contract=off -S)
  set(code 1)
  if(HVD_CLANG_FOR_PTX)  # not every clang was built with NVIDIA's chips
    execute_process(COMMAND ${command} -o - /dev/null RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  endif()
  if(NOT code EQUAL 0)
    set(command "")
  endif()
  set(${result} ${command} PARENT_SCOPE)
endfunction()

set(all_ptx "")
set(chips "")
set(machine_code "")
set(clang "")
set(fault "they are switched off")
if(wanted)
  hvd_fault_of_nvcc(fault)
  hvd_clang_for_ptx(clang)
endif()
file(GLOB sources CONFIGURE_DEPENDS ${kernels}/*.hpp ${kernels}/*.cu)
if(NOT fault)
  # A multiplication and an addition are never fused: results have the bits of devices/host. The host's compiler only
  # runs its preprocessor, so any version will do.
  add_custom_command(OUTPUT ${image}/kernels_75.ptx DEPENDS ${sources}
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${image}
                     COMMAND ${HVD_NVCC} -std=c++20 -I ${CMAKE_CURRENT_SOURCE_DIR} -O3 -fmad=false -ptx
                             -arch=compute_75 -ccbin ${CMAKE_CXX_COMPILER} -allow-unsupported-compiler
                             -o ${image}/kernels_75.ptx ${kernels}/kernels.cu
                     COMMENT "Compiling the kernels for GPUs" VERBATIM)
  set(all_ptx ${image}/kernels_75.ptx)
  hvd_known_chips(chips)
  set(cubins "")
  set(parts "")
  foreach(chip IN LISTS chips)
    # What ptxas tells of registers is for the tests (tests/devices/cuda_image.py).
    add_custom_command(OUTPUT ${image}/kernels_${chip}.cubin DEPENDS ${image}/kernels_75.ptx
                       COMMAND sh -c [[report=$0; "$@" 2> "$report" || { cat "$report" >&2; false; }]]
                               ${image}/kernels_${chip}.report ${HVD_PTXAS} -v -O3 -arch=sm_${chip}
                               -o ${image}/kernels_${chip}.cubin ${image}/kernels_75.ptx
                       COMMENT "Assembling the kernels for sm_${chip}" VERBATIM)
    list(APPEND cubins ${image}/kernels_${chip}.cubin)
    list(APPEND parts --image3=kind=elf,sm=${chip},file=${image}/kernels_${chip}.cubin)
  endforeach()
  add_custom_command(OUTPUT ${image}/kernels.fatbin DEPENDS ${cubins}
                     COMMAND ${HVD_FATBINARY} --64 --compress-all --create=${image}/kernels.fatbin ${parts}
                     COMMENT "Joining the kernels of all chips" VERBATIM)
  set(machine_code ${image}/kernels.fatbin)
endif()
if(clang)
  # Whatever is not inlined would have its parameters copied to local memory.
  add_custom_command(OUTPUT ${image}/kernels_70.ptx DEPENDS ${sources}
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${image}
                     COMMAND ${clang} -I ${CMAKE_CURRENT_SOURCE_DIR} -mllvm -inline-threshold=100000
                             -o ${image}/kernels_70.ptx ${kernels}/kernels.cu
                     COMMENT "Compiling the kernels for GPUs as old as V100" VERBATIM)
  list(PREPEND all_ptx ${image}/kernels_70.ptx)
endif()

if(all_ptx)
  enable_language(ASM)
  list(GET all_ptx 0 ptx)  # for the oldest chips
  add_library(hvd_cuda_image STATIC ${kernels}/image.S ${kernels}/image.cpp)
  set(parts ${machine_code} ${ptx})
  set_source_files_properties(${kernels}/image.S PROPERTIES OBJECT_DEPENDS "${parts}")
  target_compile_definitions(hvd_cuda_image PRIVATE HVD_CUDA_PTX="${ptx}")
  if(fault)
    message(NOTICE "-- the kernels for GPUs are compiled by the driver when it loads them: ${fault}")
  else()
    target_compile_definitions(hvd_cuda_image PRIVATE HVD_CUDA_FATBIN="${machine_code}")
  endif()
  if(NOT clang)
    message(NOTICE "-- no clang for GPUs was found (clang++-16): the kernels cannot be loaded on V100, nor by drivers "
                   "that are older than ${HVD_NVCC}")
  endif()
else()
  if(HVD_CUDA_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "HVD_CUDA_KERNELS=ON: ${fault}, and no clang that compiles for GPUs (clang++-16)")
  elseif(wanted)
    message(NOTICE "-- no kernels for GPUs are built: ${fault}, and no clang that compiles for GPUs (clang++-16)")
  endif()
  add_library(hvd_cuda_image STATIC ${kernels}/image.cpp)
  if(HVD_SANITIZE)
    target_compile_definitions(hvd_cuda_image PRIVATE HVD_CUDA_NAMES_ALONE)
  endif()
endif()
# for the tests
set_property(GLOBAL PROPERTY hvd_cuda_chips ${chips})
set_property(GLOBAL PROPERTY hvd_cuda_ptx ${all_ptx})
target_include_directories(hvd_cuda_image PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
