// The few functions of NVIDIA's driver and of its compiler at run time (NVRTC) that are used,
// opened when they are first needed: nothing is linked, and no header of theirs is needed to build.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace smelt::cuda {

using CuResult = int;  // 0: good
using CuContext = struct CUctx_st*;
using CuModule = struct CUmod_st*;
using CuFunction = struct CUfunc_st*;
using CuStream = struct CUstream_st*;
using CuDevice = int;
using CuPointer = unsigned long long;

struct Driver {
  CuResult (*cuInit)(unsigned flags);
  CuResult (*cuGetErrorString)(CuResult error, const char** text);
  CuResult (*cuDeviceGet)(CuDevice* device, int ordinal);
  CuResult (*cuDeviceGetCount)(int* count);
  CuResult (*cuDeviceGetAttribute)(int* value, int attribute, CuDevice device);
  CuResult (*cuDevicePrimaryCtxGetState)(CuDevice device, unsigned* flags, int* active);
  CuResult (*cuDevicePrimaryCtxRetain)(CuContext* context, CuDevice device);
  CuResult (*cuCtxGetCurrent)(CuContext* context);
  CuResult (*cuCtxPushCurrent)(CuContext context);
  CuResult (*cuCtxPopCurrent)(CuContext* context);
  CuResult (*cuCtxGetDevice)(CuDevice* device);
  CuResult (*cuModuleLoadData)(CuModule* module, const void* image);
  CuResult (*cuModuleUnload)(CuModule module);
  CuResult (*cuModuleGetFunction)(CuFunction* function, CuModule module, const char* name);
  CuResult (*cuStreamIsCapturing)(CuStream stream, int* status);
  CuResult (*cuLaunchKernel)(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                             CuStream stream, void** parameters, void** extra);
};

using NvrtcProgram = struct _nvrtcProgram*;

struct Nvrtc {
  int (*nvrtcVersion)(int* major, int* minor);
  const char* (*nvrtcGetErrorString)(int result);
  int (*nvrtcCreateProgram)(NvrtcProgram* program, const char* text, const char* name, int headers,
                            const char* const* header_texts, const char* const* header_names);
  int (*nvrtcDestroyProgram)(NvrtcProgram* program);
  int (*nvrtcCompileProgram)(NvrtcProgram program, int options, const char* const* option);
  int (*nvrtcGetProgramLogSize)(NvrtcProgram program, size_t* size);
  int (*nvrtcGetProgramLog)(NvrtcProgram program, char* log);
  int (*nvrtcGetCUBINSize)(NvrtcProgram program, size_t* size);
  int (*nvrtcGetCUBIN)(NvrtcProgram program, char* code);
};

// Whether it could be opened; if not, why. Neither makes a context, nor wakes the driver.
Decision has_driver();
Decision has_nvrtc();
// Only where there is one.
const Driver& driver();
const Nvrtc& nvrtc();

// An Error with the driver's own words.
void check_driver(CuResult result, const char* what);

}  // namespace smelt::cuda
