// Writes the CUDA C++ of one kernel, by its plan.
//
// Names in the text: b<n> buffers, v<n> values, i<n> dimensions, n<n> sizes that are not known,
// `item` what the team computes, `thread` the thread's number in the team, `point` the flat inner
// point, `step` and `lane` the turns of unrolled loops: over inner points, and over a vector.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/plan.h"
#include "loops/kernel.h"

namespace smelt::cuda {

using loops::Buffer;
using loops::Index;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Stage;
using loops::Val;

// What every kernel's text begins with; the number of threads and the name follow.
inline constexpr const char* kKernelHead = "extern \"C\" __global__ void __launch_bounds__(";

// Of a kernel whose reductions are cut into slices there are two functions.
enum class Part : uint8_t { whole, slices, finish };

class Emitter {
 public:
  Emitter(const Kernel& kernel, const Plan& plan, std::string name, Part part);
  std::string run();

 private:
  // emitter.cpp: the frame of the function.
  void write_parameters();
  void find_item();
  void count_lanes(const std::string& left);
  void declare_shared();
  void declare_dims(const std::string& from, int first, int last, int vector_dim);
  void write_stage(const Stage& stage);
  void sync();
  bool is_looped() const;

  // emit_tiles.cpp: a kernel whose points are taken by tiles.
  void write_tiles();
  void find_tile();
  void load_tiles();
  void open_tile(const char* other, const char* last);

  // emit_stages.cpp: the instructions of a stage, and the loops around them.
  void write_outer(const Stage& stage, bool stores);
  void write_inner(const Stage& stage);
  void write_hoisted(const Stage& stage);
  void write_kept(const Stage& stage);
  void write_body(const Stage& stage);
  void open_points();
  // Those of `insts` that do not vary along the vector, then the others in a loop over it.
  void write_insts(const std::vector<Val>& insts, bool stores);
  void write_lanes(const std::vector<Val>& insts, bool stores);
  void open_lanes();
  bool is_loaded_ahead(Val value) const;
  void write_one(Val value);
  void write_store(Val value, const std::string& what);
  std::string store_guard() const;

  // emit_reductions.cpp
  void open_reduction(Val value);
  void combine(Val value);
  void close_reduction(Val value);
  void store_partial(Val value);
  void combine_slices(const Stage& stage);
  std::string reduction_type(Val value) const;
  std::string partial_place(Val value, const std::string& slice, bool lane) const;

  // emit_values.cpp: what an instruction computes, as an expression.
  std::string expression(const Inst& inst) const;
  std::string literal(const Inst& inst) const;
  std::string ref(Val value) const;
  std::string loaded(const Inst& inst, const std::string& element) const;

  // emit_indices.cpp
  std::string index_text(const Index& index, bool lane, bool wide) const;
  std::string atom_text(const loops::Atom& atom, bool lane, bool wide) const;
  std::string dim_text(int dim, bool lane, bool wide) const;
  std::string size_text(const Size& size) const;
  std::string product_text(std::span<const Size> sizes) const;
  std::string element_text(const Inst& inst, bool lane) const;  // b0[...]
  std::string position_text() const;
  bool is_never_negative(const Index& index) const;

  void line(const std::string& text);
  void open(const std::string& text);
  void close();
  std::string number(Val value) const { return std::to_string(value); }
  bool has_lanes() const { return plan_.vector > 1; }
  bool lanes_are_points() const { return plan_.vector > 1 && !plan_.outer_vector; }

  const Kernel& kernel_;
  const Plan& plan_;
  const std::string name_;
  const Part part_;
  const Sizes sizes_;
  const Sizes extents_;
  const int outer_;  // outer dimensions
  std::string text_;
  int depth_ = 0;
  bool in_lane_ = false;
  bool in_inner_ = false;
  bool in_scan_ = false;       // in a stage that scans, by a team
  std::vector<bool> escapes_;  // per value: a later stage uses it
  std::vector<bool> array_;    // per value: one for each lane
};

// The name of the type of a dtype's values, and of its elements in memory.
std::string value_type(DType dtype);
std::string memory_type(DType dtype);

}  // namespace smelt::cuda
