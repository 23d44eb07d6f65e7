// What a decomposition is asked: a node as other nodes.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/rules/node_reader.h"

namespace smelt {

// Writes nodes in the place of one.
class DecomposeQuery : public NodeReader {
 public:
  using NodeReader::NodeReader;
  virtual ~DecomposeQuery() = default;
  // Appends a node of an op that has one result and a shape rule; its type is worked out. Numbers
  // and dtypes are plain Args. args: positional, defaults included.
  virtual ValueId call(std::string_view op, std::vector<Arg> args) = 0;
  virtual const TensorType& type_of(ValueId value) const = 0;
  // The node that computes an argument; nullptr: none.
  virtual const Node* maker(ValueId value) const = 0;
  // Can a kernel compute the node as it is?
  virtual Decision is_lowered() const = 0;
  // `value` stands for result i from now on. It gets the strides the result had; sizes and dtype
  // must be equal.
  virtual void replace(size_t i, ValueId value) = 0;
};
// False: nothing was written, the node stays.
using DecomposeRule = bool (*)(DecomposeQuery& q);

}  // namespace smelt
