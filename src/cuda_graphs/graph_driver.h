// The functions of NVIDIA's driver that concern streams and graphs, opened when they are first
// needed: nothing is linked, and no header of CUDA is needed to build. Types and layouts are those
// of cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace smelt::cuda_graphs {

using Status = int;  // 0: good
using Stream = struct CUstream_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;
using Node = struct CUgraphNode_st*;
using Function = struct CUfunc_st*;
using Kernel = struct CUkern_st*;
using Context = struct CUctx_st*;
using Pointer = unsigned long long;

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelParams {
  Function func;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** params;
  void** extra;
  Kernel kern;
  Context context;
};

// CUDA_MEMSET_NODE_PARAMS_v1
struct MemsetParams {
  Pointer dst;
  size_t pitch;
  unsigned value;
  unsigned element_bytes;
  size_t width;
  size_t height;
};

// CUDA_MEMCPY3D_v2
struct MemcpyParams {
  struct Side {
    size_t x_bytes, y, z, lod;
    unsigned memory_type;
    void* host;
    Pointer device;
    void* array;
    void* reserved;
    size_t pitch, height;
  };
  Side src, dst;
  size_t width_bytes, height, depth;
};

enum NodeType : int { kKernelNode = 0, kMemcpyNode = 1, kMemsetNode = 2, kEmptyNode = 5 };
enum MemoryType : unsigned { kHostMemory = 1, kDeviceMemory = 2 };
// Of the array `extra`.
enum : uintptr_t { kExtraEnd = 0, kExtraPointer = 1, kExtraBytes = 2 };

struct GraphDriver {
  Status (*get_error_string)(Status, const char**);
  Status (*context_current)(Context*);
  Status (*pointer_attribute)(void*, int, Pointer);
  Status (*stream_create)(Stream*, unsigned flags);
  Status (*stream_destroy)(Stream);
  Status (*stream_synchronize)(Stream);
  Status (*stream_is_capturing)(Stream, int*);
  Status (*stream_begin_capture)(Stream, int mode);
  Status (*stream_end_capture)(Stream, Graph*);
  // Newer drivers have the third form beside the second, or alone. See graph_of_capture().
  Status (*capture_info_v2)(Stream, int* status, uint64_t* id, Graph*, const Node** last,
                            size_t* count);
  Status (*capture_info_v3)(Stream, int* status, uint64_t* id, Graph*, const Node** last,
                            const void** edges, size_t* count);
  Status (*graph_nodes)(Graph, Node*, size_t*);
  Status (*graph_destroy)(Graph);
  Status (*graph_instantiate)(GraphExec*, Graph, unsigned long long flags);
  Status (*exec_destroy)(GraphExec);
  Status (*graph_launch)(GraphExec, Stream);
  Status (*node_type)(Node, int*);
  Status (*kernel_params)(Node, KernelParams*);
  Status (*memset_params)(Node, MemsetParams*);
  Status (*memcpy_params)(Node, MemcpyParams*);
  Status (*set_kernel_params)(GraphExec, Node, const KernelParams*);
  Status (*set_memset_params)(GraphExec, Node, const MemsetParams*, Context);
  Status (*set_memcpy_params)(GraphExec, Node, const MemcpyParams*, Context);
  Status (*function_param)(Function, size_t index, size_t* offset, size_t* bytes);
  Status (*kernel_param)(Kernel, size_t index, size_t* offset, size_t* bytes);
  Status (*function_name)(const char**, Function);
  Status (*kernel_name)(const char**, Kernel);
};

// nullptr where there is no driver, or one that is too old.
const GraphDriver* graph_driver();
// Why, in that case.
const std::string& driver_problem();

// The graph that a stream's work is being captured into.
Graph graph_of_capture(Stream stream);

// An Error with the driver's own words.
void check(Status status, const char* what);

}  // namespace smelt::cuda_graphs
