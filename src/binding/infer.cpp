// smelt._native.infer_types: what the shape rules say about a call, for tests.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <map>

#include "aten/convert.h"
#include "backend/backend.h"
#include "graph/op_name.h"
#include "ops/meaning.h"
#include "ops/rows.h"

namespace smelt {
namespace {

namespace py = pybind11;

c10::OperatorHandle find_op(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                        overload.c_str());
}

bool can_describe(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && to_dtype(tensor.scalar_type()) &&
         !tensor.is_quantized();
}

py::object describe(const std::optional<TensorType>& type, const SymbolTable& symbols) {
  if (!type) return py::none();
  const auto numbers = [&](const Sizes& sizes) {
    py::list list;
    for (const Size& size : sizes) list.append(symbols.hint(size));
    return py::tuple(list);
  };
  return py::make_tuple(name_of(type->dtype), numbers(type->sizes), numbers(type->strides),
                        symbols.hint(type->offset), type->device.str(), type->conj, type->neg);
}

// Every size above 1 as a symbol, equal sizes as the same one; the strides with them where the
// tensor is contiguous.
class Symbolizer {
 public:
  explicit Symbolizer(SymbolTable& symbols) : symbols_(symbols) {}

  void operator()(TensorType& type) {
    const bool contiguous = type.strides == contiguous_strides(type.sizes);
    for (Size& size : type.sizes) {
      if (size.known() >= 2) size = symbol_of(size.known());
    }
    if (contiguous) type.strides = contiguous_strides(type.sizes);
  }

 private:
  Size symbol_of(int64_t value) {
    const auto [found, is_new] = known_.try_emplace(value);
    if (is_new) found->second = symbols_.add(value);
    return found->second;
  }

  SymbolTable& symbols_;
  std::map<int64_t, Size> known_;
};

// A list with one (dtype, sizes, strides, offset, device, conj, neg) or None per result; a string
// where the row cannot tell or there is none. With `symbolic` the rule is asked about symbols, and
// the answer is given for the sizes they stand for.
py::object infer_types(const std::string& name, bool symbolic, const py::args& args,
                       const py::kwargs& kwargs) {
  const OpRow* row = find_row(OpName(name));
  if (row == nullptr) return py::str("no row for " + name);
  const c10::OperatorHandle op = find_op(name);
  const torch::jit::ToIValueAllowNumbersAsTensors numbers_are_tensors(true);
  const torch::jit::Stack stack = torch::jit::createStackForSchema(
      op.schema(), torch::jit::tuple_slice(args), kwargs, std::nullopt);

  std::vector<TensorType> types;
  SymbolTable symbols;
  Symbolizer symbolize(symbols);
  bool described = true;
  ArgWriter writer;
  writer.tensor = [&](const at::Tensor& tensor) -> Arg {
    if (!can_describe(tensor)) {
      described = false;
      return None{};
    }
    types.push_back(type_of(tensor));
    if (symbolic) symbolize(types.back());
    return Ref{static_cast<int32_t>(types.size() - 1)};
  };
  writer.opaque = [](const c10::IValue&) -> Arg { return Opaque{0}; };
  std::vector<Arg> values;
  for (size_t i = 0; i < stack.size(); ++i) {
    values.push_back(to_arg(stack[i], op.schema().arguments()[i].real_type(), writer));
  }
  if (!described) return py::str("a tensor is not strided or of an unknown dtype");

  ShapeQuery query(values, types, symbols, default_dtype().value_or(DType::f32));
  if (Decision made = row->shape(query); !made) return py::str(made.reason());
  py::list results;
  for (const auto& type : query.results) results.append(describe(type, symbols));
  return results;
}

}  // namespace

void bind_infer(py::module_& m) {
  for (bool symbolic : {false, true}) {
    m.def(symbolic ? "infer_types_symbolic" : "infer_types",
          [symbolic](const std::string& name, const py::args& args, const py::kwargs& kwargs) {
            return infer_types(name, symbolic, args, kwargs);
          });
  }
  m.def("row_names", [] {
    std::vector<std::string> names;
    for (const OpRow& row : all_rows()) names.emplace_back(row.name);
    return names;
  });
  // "avx512", "avx2", ...: what kernels are made for; "none" where smelt was built without LLVM.
  m.def("cpu_target", [] {
    const Backend* backend = backend_for(native_backends(), Device{});
    return backend != nullptr ? backend->target() : "none";
  });
  // By name, how the native back end computes the op; for tests and docs/ops.md.
  m.def("meaning_forms", [] {
    static constexpr const char* kPatterns[] = {"pointwise", "view", "gather", "factory"};
    std::map<std::string, std::string> forms;
    for (const Meaning& meaning : all_meanings())
      forms[std::string(meaning.name)] = meaning.reduction                    ? "reduction"
                                         : meaning.scan                       ? "scan"
                                         : meaning.update && !meaning.element ? "update"
                                         : meaning.decompose
                                             ? "decompose"
                                             : kPatterns[static_cast<int>(meaning.pattern)];
    return forms;
  });
}

}  // namespace smelt
