// The facts of an op: what is known of it beside its shape rule and its meaning.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace smelt {

// How a recorder writes a call down where it can't be written as it stands.
enum class Recording : uint8_t {
  as_called,
  lift,         // a real tensor becomes a constant of the recording
  declared,     // as OpFacts::instead, which says what it writes
  optimizer,    // a fused optimizer, in place: as its functional form, results written by hand
  on_copy,      // in place on a copy, where memory decides about elements (bernoulli_)
  division,     // likewise, where numbers are complex
  dense_only,   // refused where the target has gaps
  polygamma,    // as OpFacts::instead, which takes its arguments the other way round
  one_hot,      // as zeros and a scatter
  scaled,       // to sizes times a factor: as OpFacts::instead, which is given the sizes
  reads_bits,   // a view of complex numbers as real ones
  copy,         // a cast or a copy: stays under functionalization
  singular,     // values alone, as OpFacts::instead, which gives vectors too
  symmetric,    // likewise
  eigenvalues,  // likewise
  batched,      // a matrix beside a batch is expanded to one
  rebinds,      // refused with out=, which it rebinds
  chunks,       // as OpFacts::instead, which is given the size of a part
};

// What an op whose result has a size that contents decide becomes where the size is known.
enum class Selection : uint8_t {
  none,
  places,
  place_columns,
  masked,
  indexed,
  repeated,  // such a size may vary, but is never a part of a graph
  unique,    // likewise
};

// lt, ge: below; gt, le: above
enum class Comparison : uint8_t { none, below, above, equal, unequal };
enum class Quantifier : uint8_t { none, all, any };  // of truths

struct OpFacts {
  // Of all forms of an op: overloads, in place, out=. It is enough that the row of one says so.

  // Whether it raises may depend on what its tensors hold.
  bool may_fail = false;
  // It says where in memory its result lies, counted from the start of the storage.
  bool names_places = false;
  // The result has the shape of the first argument, whatever those of the others are.
  bool keeps_first_shape = false;

  // Of one overload.

  // Memory.
  bool is_view = false;                     // though its schema does not say so
  std::array<int8_t, 2> writes = {-1, -1};  // arguments that it changes, and its schema is silent
  int8_t writes_if = -1;                    // the argument that must be true for it; -1: always
  bool sets_storage = false;                // exchanges the memory of its first argument
  bool resizes = false;                     // gives its first argument other sizes
  bool is_uninitialized = false;            // what its result holds is anything
  bool converts_to_target = false;          // in place: takes any dtype, and converts it
  bool fits_target_only = false;  // in place: writes the dtype that it computes, no wider one

  // Autograd.
  bool makes_new = false;        // Python has it called below autograd: it has no gradient
  bool lifts = false;            // hands over a tensor that C++ code filled
  bool detaches = false;         // in place
  bool reads_grad_mode = false;  // the kernel does something else where gradients are off

  // Contents that decide about shapes and numbers on the host.
  bool sized_by_contents = false;  // and PyTorch has no tag to say so
  bool gives_columns = false;      // a list, as many as its argument has dimensions
  bool by_masks_only = false;      // contents matter only where an argument in a list is a mask
  int8_t unless_given = -1;        // contents matter only without this integer argument
  int8_t sized_by_argument = -1;   // of which argument; -1: of all
  bool literals_by_types = false;  // what it gives on the host follows from types
  bool gives_number = false;       // item()
  bool sized_by_numbers = false;   // its Scalars decide about the size of the result
  bool sized_by_library = false;   // only a library knows how much it keeps (library_results.h)
  bool takes_elements = false;     // of its first argument; the others say which
  bool packs_sequences = false;    // its sizes of batches are made of lengths alone
  bool reads_lengths = false;      // of sequences, on the host: it needs tensors with contents
  bool asks_if_empty = false;  // its C++ code asks for the number of elements only whether it is 0
  Selection selects = Selection::none;

  // What is computed.
  bool reduces_all = false;          // to one element, whatever the shapes are
  bool draws_unit_interval = false;  // numbers from [0, 1)
  // The state of a generator, in two arguments that are not read where the third is 0.
  std::array<int8_t, 3> drawn_from = {-1, -1, -1};
  Comparison compares = Comparison::none;
  Quantifier asks = Quantifier::none;

  Recording recording = Recording::as_called;
  std::string_view instead = {};  // the op that such a recording calls

  friend bool operator==(const OpFacts&, const OpFacts&) = default;
};

}  // namespace smelt
