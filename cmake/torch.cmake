# The torch that the chosen Python has, and that Python, as three interface targets:
#   smelt_torch         libtorch's headers and libraries
#   smelt_python        Python.h
#   smelt_torch_python  both, with pybind11 (torch carries it) and torch_python
#
# Plain paths instead of find_package(Torch): a CUDA build of torch makes that demand a CUDA toolkit, which smelt
# does not need. Every torch we accept is built with the C++11 ABI, the default of g++.

set(SMELT_PYTHON "" CACHE FILEPATH "The Python interpreter whose torch smelt is built against")
if(NOT SMELT_PYTHON)
  if(Python_EXECUTABLE) # set by scikit-build-core
    set(SMELT_PYTHON ${Python_EXECUTABLE})
  else()
    find_program(SMELT_PYTHON3 python3 REQUIRED)
    set(SMELT_PYTHON ${SMELT_PYTHON3})
  endif()
endif()

execute_process(
  COMMAND ${SMELT_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/find_torch.py
  OUTPUT_VARIABLE answer ERROR_VARIABLE complaint RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${complaint}")
endif()
foreach(key IN ITEMS torch_dir torch_version python_version python_include python_library extension_suffix)
  if(NOT answer MATCHES "${key}=([^\n]*)")
    message(FATAL_ERROR "find_torch.py did not print ${key}")
  endif()
  string(TOUPPER SMELT_${key} variable)
  set(${variable} ${CMAKE_MATCH_1})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_LIST_DIR}/find_torch.py ${SMELT_TORCH_DIR}/version.py)
message(STATUS "torch ${SMELT_TORCH_VERSION} in ${SMELT_TORCH_DIR}")

set(torch_lib ${SMELT_TORCH_DIR}/lib)
add_library(smelt_torch INTERFACE)
target_include_directories(smelt_torch SYSTEM INTERFACE
  ${SMELT_TORCH_DIR}/include ${SMELT_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(smelt_torch INTERFACE ${torch_lib}/libtorch_cpu.so ${torch_lib}/libc10.so)
if(EXISTS ${torch_lib}/libtorch_cuda.so)
  # Named although no symbol of it is used: loading it is what registers the CUDA kernels. Its own libraries belong
  # to the driver and the nvidia packages, and are found at run time.
  target_link_libraries(smelt_torch INTERFACE ${torch_lib}/libc10_cuda.so
    "-Wl,--push-state,--no-as-needed,${torch_lib}/libtorch_cuda.so,--pop-state")
  target_link_options(smelt_torch INTERFACE -Wl,--allow-shlib-undefined)
endif()

# A process must have one C++ run time, the one that torch has. A compiler that comes with the static one only would
# put a second into each of our libraries: streams and exceptions break between the two.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so
  OUTPUT_VARIABLE shared_runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT IS_ABSOLUTE "${shared_runtime}")
  find_library(SMELT_CXX_RUNTIME libstdc++.so.6 REQUIRED)
  target_link_libraries(smelt_torch INTERFACE ${SMELT_CXX_RUNTIME})
endif()

if(NOT EXISTS ${SMELT_PYTHON_INCLUDE}/Python.h)
  message(FATAL_ERROR "${SMELT_PYTHON} has no ${SMELT_PYTHON_INCLUDE}/Python.h; install its headers (python3-dev)")
endif()
add_library(smelt_python INTERFACE)
target_include_directories(smelt_python SYSTEM INTERFACE ${SMELT_PYTHON_INCLUDE})
add_library(smelt_torch_python INTERFACE)
target_link_libraries(smelt_torch_python INTERFACE smelt_python smelt_torch ${torch_lib}/libtorch_python.so)

# A file that includes ATen takes about 2 GB to compile, whatever the number of cores.
cmake_host_system_information(RESULT memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR torch_jobs "(${memory_mb} + 1023) / 2048")
if(torch_jobs LESS 1)
  set(torch_jobs 1)
endif()
set_property(GLOBAL PROPERTY JOB_POOLS torch_compile=${torch_jobs})
