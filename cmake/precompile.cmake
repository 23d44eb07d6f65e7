# Headers of others, compiled once for all files that include them: torch's take ten times as long as a file of ours.
#
# A file still includes what it uses. Whether it does is seen where nothing is precompiled: every header is compiled
# alone (smelt_lone_headers), and so are tests, builds that check some folders alone and -DSMELT_PRECOMPILE=OFF.
option(SMELT_PRECOMPILE "Compile the headers of the standard library, of torch and of LLVM once" ON)
if(SMELT_SANITIZE_FOLDERS)
  set(SMELT_PRECOMPILE OFF) # they have flags of their own
endif()

set(precompiled_std <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <functional> <limits> <map> <memory>
  <mutex> <numeric> <optional> <set> <span> <string> <string_view> <unordered_map> <unordered_set> <utility> <variant>
  <vector>)
set(precompiled_torch <ATen/ATen.h> <ATen/FunctionalTensorWrapper.h> <ATen/core/dispatch/Dispatcher.h>
  <ATen/core/ivalue.h> <c10/core/impl/LocalDispatchKeySet.h> <torch/csrc/autograd/function.h>
  <torch/csrc/autograd/variable.h>)
set(precompiled_torch_python <torch/csrc/autograd/python_variable.h> <torch/csrc/utils/pybind.h>)
set(precompiled_llvm <llvm/IR/IRBuilder.h> <llvm/IR/Module.h>)

# Gives the folder's files the headers that its line in layers.txt lets it see. Folders with the same flags share them.
function(smelt_precompile target folder)
  if(NOT SMELT_PRECOMPILE)
    return()
  endif()
  # A compiler that can't use them says so and reads the text.
  target_compile_options(${target} PRIVATE -Wno-error=invalid-pch)
  if(SMELT_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess) # as ccache asks
  endif()
  if(ATen/ IN_LIST ${folder}_outside AND Python.h IN_LIST ${folder}_outside)
    target_precompile_headers(${target} PRIVATE <Python.h> ${precompiled_std} ${precompiled_torch_python})
  elseif(Python.h IN_LIST ${folder}_outside)
    target_precompile_headers(${target} PRIVATE ${precompiled_std}) # files choose how much of Python.h they see
  else()
    set(kind std)
    if(ATen/ IN_LIST ${folder}_outside)
      set(kind torch)
    elseif(llvm/ IN_LIST ${folder}_outside)
      set(kind llvm)
    endif()
    get_property(owner GLOBAL PROPERTY smelt_precompiled_${kind})
    if(owner)
      target_precompile_headers(${target} REUSE_FROM ${owner})
    else()
      target_precompile_headers(${target} PRIVATE ${precompiled_std})
      if(NOT kind STREQUAL std)
        target_precompile_headers(${target} PRIVATE ${precompiled_${kind}})
      endif()
      set_property(GLOBAL PROPERTY smelt_precompiled_${kind} ${target})
    endif()
  endif()
endfunction()
