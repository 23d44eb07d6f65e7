// Windows over the last dimensions of an image, which pooling ops move.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops/rules/decompose.h"

namespace smelt {

// Along one dimension.
struct Window {
  int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;
  int64_t input = 1, output = 1;  // sizes

  // Does some window leave the input?
  bool leaves() const {
    return pad > 0 || (output - 1) * stride + (kernel - 1) * dilation >= input;
  }
  bool lies_side_by_side() const {
    return kernel == stride && pad == 0 && dilation == 1 && input == output * kernel;
  }
};
using Windows = std::vector<Window>;  // of the last dimensions

// The lists of a pooling op; one number stands for all dimensions.
struct WindowArgs {
  size_t kernel, stride, pad;
  std::optional<size_t> dilation;
};
// Nothing where a size is not known.
std::optional<Windows> windows_of(const NodeReader& q, const WindowArgs& args,
                                  const TensorType& input, const TensorType& output, int spatial);
// Windows side by side that make `output` of `input`, if the sizes divide.
std::optional<Windows> even_windows(const TensorType& input, const TensorType& output, int spatial);
// May they be written out, element by element?
Decision allows_windows(const std::optional<Windows>& windows);
bool lie_side_by_side(const std::optional<Windows>& windows);

std::vector<int64_t> kernels_of(const Windows& windows);
// The place in the input of the element at that offset of the window `at`.
Index offset_index(const Index& at, const Window& window, int64_t offset);

// How many elements a window has.
int64_t offsets_in(const Windows& windows);
// Visits all tuples of numbers below the limits, the last one fastest.
void each_offset(const std::vector<int64_t>& limits,
                 const std::function<void(const std::vector<int64_t>&)>& visit);

// A conjunction that may be empty.
struct Condition {
  Expr all;
  void add(Expr one) { all = all.builder ? all & one : one; }
};

// The input with two dimensions for each one that is pooled: the window's number, and inside.
Term window_view(Term input, const Windows& windows, Dims& inside);
// Argument 0's windows, which lie side by side, added up and divided.
bool average_side_by_side(DecomposeQuery& q, const Windows& windows, int64_t divisor);

}  // namespace smelt
