// torch's words for types, sizes and arguments, and smelt's: both directions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymInt.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "aten/number_node.h"
#include "base/arg.h"
#include "base/type.h"

namespace smelt {

// Nothing for the element types smelt has no word for (quantized, bits).
std::optional<DType> to_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(DType dtype);
// torch.get_default_dtype(); nothing where smelt has no word for it.
std::optional<DType> default_dtype();

Device to_device(c10::Device device);
c10::Device to_c10(Device device);

// A SymInt over a SizeNode (size_node.h) gives its expression; a plain one its integer.
Size to_size(const c10::SymInt& value);
Sizes to_sizes(c10::SymIntArrayRef values);
// Of sizes that are known.
std::vector<int64_t> known_sizes(std::span<const Size> sizes);

// What is known of a strided tensor. Callers have checked that it is strided and of a known dtype.
TensorType type_of(const at::Tensor& tensor);

// How the tensors and opaque things inside an IValue become arguments.
struct ArgWriter {
  std::function<Arg(const at::Tensor&)> tensor;  // a Ref, or a number for a wrapped number
  std::function<Arg(const RecordedNumber&)> number = {};
  std::function<Arg(const c10::IValue&)> opaque;  // a generator, an object, ...
};
// An argument of a call as plain data. `type` is the schema argument's real_type(), which tells a
// dtype from an integer.
Arg to_arg(const c10::IValue& value, const c10::TypePtr& type, const ArgWriter& writer);

// And back: literals as torch wants them for that schema type. References and opaque things are
// asked for.
struct ArgReader {
  std::function<at::Tensor(Ref)> tensor;
  std::function<at::Scalar(Ref)> number = {};  // where the op takes a number
  std::function<c10::IValue(Opaque)> opaque;
  std::function<int64_t(const Size&)> size;  // the value of an integer
};
c10::IValue to_ivalue(const Arg& arg, const c10::TypePtr& type, const ArgReader& reader);

// A plain number, and one that is an argument.
Arg number_arg(const at::Scalar& number);
at::Scalar scalar_of(const Arg& number);
// The 0-dim CPU tensor that stands for a Python number in a tensor's place.
at::Tensor wrapped_number(const Arg& number);

}  // namespace smelt
