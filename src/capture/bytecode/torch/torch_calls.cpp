// Calls of PyTorch's C functions. What they compute passes the dispatcher, where the log sees it;
// the rest is known here by name.
#include "capture/bytecode/torch/torch_calls.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/values/dynamic_tensors.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

using Set = std::unordered_set<std::string_view>;

// Tensor methods that read or change something behind the dispatcher's back.
const Set kHiddenMethods{"numpy",
                         "tolist",
                         "data_ptr",
                         "storage",
                         "untyped_storage",
                         "__array__",
                         "requires_grad_",
                         "_make_subclass",
                         "as_subclass",
                         "apply_",
                         "map_",
                         "map2_",
                         "new",
                         "new_tensor",
                         "_typed_storage",
                         "record_stream",
                         "_is_view",
                         "__cuda_array_interface__",
                         "__dlpack__",
                         "_make_wrapper_subclass",
                         "_fix_weakref",
                         "retain_grad",
                         "_register_hook_dict",
                         "_data_ptr",
                         "__complex__",
                         "_view_func",
                         "_view_func_unsafe",
                         "_use_count",
                         "_dtensor__new__",
                         "_rev_view_func_unsafe",
                         "share_memory_",
                         "is_shared",
                         "set_",
                         "set_data",
                         "const_data_ptr",
                         "mutable_data_ptr",
                         "_storage",
                         "is_set_to",
                         "storage_offset"};
// Functions that make a tensor of Python data: constants, unless the data has tensors in it.
const Set kFromData{"tensor",
                    "as_tensor",
                    "asarray",
                    "new_tensor",
                    "sparse_coo_tensor",
                    "sparse_csr_tensor",
                    "sparse_csc_tensor",
                    "sparse_bsr_tensor",
                    "sparse_bsc_tensor",
                    "sparse_compressed_tensor"};
const Set kHiddenFunctions{"from_numpy",
                           "frombuffer",
                           "from_file",
                           "_sync",
                           "_from_functional_tensor",
                           "_to_functional_tensor",
                           "_enable_functionalization",
                           "_disable_functionalization"};
// Functions of torch._C that tell what the ambient guard implies, or depend on their arguments
// alone.
const Set kAmbientReaders{"is_grad_enabled",
                          "is_inference_mode_enabled",
                          "is_autocast_enabled",
                          "is_autocast_cpu_enabled",
                          "get_autocast_dtype",
                          "get_autocast_cpu_dtype",
                          "get_autocast_gpu_dtype",
                          "is_autocast_cache_enabled",
                          "get_default_dtype",
                          "_get_tracing_state",
                          "_is_tracing",
                          "_has_torch_function",
                          "_has_torch_function_unary",
                          "_has_torch_function_variadic",
                          "_is_torch_function_enabled",
                          "_is_torch_function_mode_enabled",
                          "_is_torch_function_all_disabled",
                          "_len_torch_function_stack",
                          "_len_torch_dispatch_stack",
                          "_get_mkldnn_enabled",
                          "_get_flash_sdp_enabled",
                          "_get_math_sdp_enabled",
                          "_is_any_autocast_enabled",
                          "is_anomaly_enabled",
                          "_are_functorch_transforms_active",
                          "_get_deterministic_algorithms",
                          "_is_key_in_tls_included",
                          "get_device_module",
                          "_is_autocast_available",
                          "_get_function_stack_at",
                          "_cuda_getDeviceCount",
                          "promote_types",
                          "result_type",
                          "can_cast",
                          "_get_max_operator_version",
                          "_saved_tensors_hooks_get_disabled_error_message",
                          "_log_api_usage_once",
                          "_accelerator_getAccelerator",
                          "_group_tensors_by_device_and_dtype"};
// Functions that set what the ambient guard reads: done again by each cached call, in order.
const Set kAmbientWriters{
    "_set_grad_enabled",           "set_autocast_enabled",       "set_autocast_cpu_enabled",
    "set_autocast_dtype",          "set_autocast_cpu_dtype",     "set_autocast_gpu_dtype",
    "set_autocast_cache_enabled",  "autocast_increment_nesting", "autocast_decrement_nesting",
    "clear_autocast_cache",        "set_grad_enabled",           "_set_sdp_use_flash",
    "_set_sdp_use_math",           "set_anomaly_enabled",        "_saved_tensors_hooks_disable",
    "_saved_tensors_hooks_enable", "_set_default_dtype"};
// Modules whose functions do nothing but call ops.
const Set kOpModules{"torch._C._nn",      "torch._C._fft",    "torch._C._linalg",
                     "torch._C._special", "torch._C._sparse", "torch._C._nested"};

enum class Kind : uint8_t { none, op, from_data, reads, writes, hidden };

bool holds_tensor(PyObject* object, int depth = 0) {
  if (tensors().is_tensor(object)) return true;
  if (depth > 3 || !(PyList_Check(object) || PyTuple_Check(object))) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
    PyObject* item =
        PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
    if (holds_tensor(item, depth + 1)) return true;
  }
  return false;
}

Kind kind_of_function(std::string_view name) {
  if (kFromData.contains(name)) return Kind::from_data;
  return kHiddenFunctions.contains(name) ? Kind::hidden : Kind::op;
}

Kind kind_of_core_function(std::string_view name) {
  if (kAmbientReaders.contains(name)) return Kind::reads;
  if (kAmbientWriters.contains(name)) return Kind::writes;
  return Kind::hidden;
}

bool names_cpu_or_cuda(PyObject* device) {
  return PyUnicode_Check(device) && (PyUnicode_CompareWithASCIIString(device, "cpu") == 0 ||
                                     PyUnicode_CompareWithASCIIString(device, "cuda") == 0);
}

// And there is something to say.
bool says_why_hooks_are_banned(PyObject* callee) {
  if (name_in_c(callee) != "_saved_tensors_hooks_get_disabled_error_message") return false;
  const Object message = Object::steal(PyObject_CallNoArgs(callee));
  PyErr_Clear();
  return message.get() != Py_None;
}

// Tensor.new(2, 3), as opposed to new(data), new(storage).
bool takes_sizes(std::span<const Value> arguments, PyObject* keywords) {
  return keywords == nullptr && arguments.size() > 1 &&
         std::ranges::all_of(arguments.subspan(1),
                             [](const Value& size) { return PyLong_CheckExact(size.object); });
}

Kind kind_of_method(std::string_view name) {
  return kHiddenMethods.contains(name) ? Kind::hidden : Kind::op;
}

bool is_tensor_type(PyTypeObject* type) {
  return type == known_type(KnownType::tensor_base) || type == known_type(KnownType::tensor);
}

Kind classify_bound(std::string_view name, PyObject* self, bool is_bound_op) {
  if (tensors().is_tensor(self)) return kind_of_method(name);
  if (PyModule_Check(self)) {
    const char* module = PyModule_GetName(self);
    if (module == nullptr) {
      PyErr_Clear();
      return Kind::none;
    }
    if (kOpModules.contains(module)) return kind_of_function(name);
    return std::string_view(module).starts_with("torch") ? kind_of_core_function(name) : Kind::none;
  }
  if (PyType_Check(self)) {
    const std::string_view owner = reinterpret_cast<PyTypeObject*>(self)->tp_name;
    if (owner.ends_with("_VariableFunctionsClass")) return kind_of_function(name);
    return owner.starts_with("torch") ? Kind::hidden : Kind::none;
  }
  // pybind11's functions: those of torch.ops (see is_bound_op), torch._C's (or somebody else's).
  if (std::string_view(Py_TYPE(self)->tp_name).find("pybind11_detail_function_record") !=
          std::string_view::npos ||
      PyCapsule_CheckExact(self))
    return name.empty() || is_bound_op ? Kind::op : kind_of_core_function(name);
  return Kind::none;
}

Kind classify(PyObject* callee) {
  if (PyCFunction_Check(callee)) {
    const auto* function = reinterpret_cast<PyCFunctionObject*>(callee);
    // m_self: the class of a static method, which PyCFunction_GET_SELF hides
    const char* doc = function->m_ml->ml_doc;
    // What torch.ops.aten.add holds says so; that of one overload has no name.
    const bool is_bound_op =
        doc != nullptr &&
        std::string_view(doc).find("Automatically bound operator") != std::string_view::npos;
    return function->m_self == nullptr
               ? Kind::none
               : classify_bound(function->m_ml->ml_name, function->m_self, is_bound_op);
  }
  PyTypeObject* type = Py_TYPE(callee);
  if ((type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) &&
      is_tensor_type(PyDescr_TYPE(callee)))
    return kind_of_method(PyUnicode_AsUTF8(PyDescr_NAME(callee)));
  return Kind::none;
}

// A tensor of no dimension that no gradient goes through: PyTorch's parser takes it for a number.
bool is_plain_scalar(PyObject* object) {
  if (!tensors().is_tensor(object)) return false;
  const Object dim = Object::steal(PyObject_CallMethod(object, "dim", nullptr));
  const Object tracked = Object::steal(PyObject_GetAttrString(object, "requires_grad"));
  PyErr_Clear();
  return dim && PyLong_CheckExact(dim.get()) && PyLong_AsLong(dim.get()) == 0 &&
         tracked.get() == Py_False;
}

// The elements of a tensor that is the same in each call.
Result read_elements(Trace& trace, Value callee, std::span<const Value> arguments) {
  const Unfollowed unfollowed(&trace, false);
  PyObject* result = call_plainly(callee.object, arguments, nullptr);
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// Functions that take nothing but numbers, sizes for the most part, and methods that do beside
// their tensor.
size_t first_number_of(PyObject* callee) {
  static const Set kFunctions{"zeros", "ones", "empty",  "full",    "rand",
                              "randn", "eye",  "arange", "randint", "randperm"};
  static const Set kMethods{"new_zeros", "new_ones", "new_empty", "view",
                            "reshape",   "expand",   "repeat"};
  if (kFunctions.contains(name_in_c(callee))) return 0;
  const bool is_method = Py_TYPE(callee) == &PyMethodDescr_Type &&
                         kMethods.contains(PyUnicode_AsUTF8(PyDescr_NAME(callee)));
  return is_method ? 1 : SIZE_MAX;
}

// A tensor where an op takes a number: add(grad, alpha=-lr), zeros(batch_sizes[0]) read it.
size_t place_of_number(PyObject* callee, std::span<const Value> arguments, PyObject* keywords) {
  const auto named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  for (size_t i = first_number_of(callee); i < arguments.size() - named; ++i)
    if (is_plain_scalar(arguments[i].object)) return i;
  for (size_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i));
    const bool is_number = PyUnicode_CompareWithASCIIString(name, "alpha") == 0 ||
                           PyUnicode_CompareWithASCIIString(name, "value") == 0;
    const size_t place = arguments.size() - named + i;
    if (is_number && is_plain_scalar(arguments[place].object)) return place;
  }
  return arguments.size();
}

// t.size(), t.size(0), t.numel() of a tensor whose sizes vary.
bool ask_for_varying_size(Trace& trace, PyObject* callee, std::span<const Value> arguments,
                          PyObject* keywords, Result* result) {
  if (!trace.sizes.any() || arguments.empty() || keywords != nullptr ||
      !tensors().is_tensor(arguments[0].object))
    return false;
  const bool is_method = Py_TYPE(callee) == &PyMethodDescr_Type;
  const std::string_view name =
      is_method ? std::string_view(PyUnicode_AsUTF8(PyDescr_NAME(callee))) : name_in_c(callee);
  if (!is_method && name != "numel") return false;
  std::optional<Result> found;
  if (name == "size" && arguments.size() == 1) {
    found = read_shape(trace, arguments[0]);
  } else if (name == "size" && arguments.size() == 2 && PyLong_CheckExact(arguments[1].object)) {
    trace.use(arguments[1]);
    found = read_varying_size(trace, arguments[0], PyLong_AsLong(arguments[1].object));
    PyErr_Clear();
  } else if ((name == "numel" || name == "nelement") && arguments.size() == 1) {
    found = read_numel(trace, arguments[0]);
  } else if (name == "__len__" && arguments.size() == 1) {
    found = read_varying_size(trace, arguments[0], 0);
  }
  if (found) *result = *found;
  return found.has_value();
}

// What it tells is no matter of sizes.
bool tells_no_sizes(PyObject* callee) {
  static const Set kNames{"dim",          "ndimension",
                          "element_size", "is_floating_point",
                          "is_complex",   "is_signed",
                          "is_conj",      "is_neg",
                          "get_device",   "is_inference",
                          "item",         "result_type",
                          "can_cast",     "promote_types",
                          "has_names",    "is_pinned",
                          "type",         "_group_tensors_by_device_and_dtype"};
  if (Py_TYPE(callee) == &PyMethodDescr_Type)
    return kNames.contains(PyUnicode_AsUTF8(PyDescr_NAME(callee)));
  return kNames.contains(name_in_c(callee));
}

// Of a tensor's shape it tells no more than the sizes.
bool tells_sizes_only(PyObject* callee) {
  static const Set kNames{"size",  "numel",    "nelement",  "is_same_size",
                          "equal", "allclose", "is_nonzero"};
  if (Py_TYPE(callee) == &PyMethodDescr_Type)
    return kNames.contains(PyUnicode_AsUTF8(PyDescr_NAME(callee)));
  return kNames.contains(name_in_c(callee));
}

void pin_sizes_in(Trace& trace, PyObject* object, bool sizes_only, int depth = 0) {
  if (tensors().is_tensor(object))
    sizes_only ? trace.pin_sizes_of(object) : trace.pin_layout_of(object);
  if (depth == 2 || !(PyList_CheckExact(object) || PyTuple_CheckExact(object))) return;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    pin_sizes_in(trace,
                 PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i),
                 sizes_only, depth + 1);
}

bool has_tensors_only(PyObject* result) {
  if (result == nullptr || result == Py_None || result == Py_NotImplemented) return true;
  if (tensors().is_tensor(result)) return true;
  if (!PyTuple_Check(result) && !PyList_Check(result)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(result); ++i)
    if (!has_tensors_only(PyList_Check(result) ? PyList_GET_ITEM(result, i)
                                               : PyTuple_GET_ITEM(result, i)))
      return false;
  return true;
}

Result call_op(Trace& trace, Kind kind, Value callee, std::span<const Value> arguments,
               PyObject* keywords) {
  if (PyCFunction_Check(callee.object)) {
    PyObject* self = PyCFunction_GET_SELF(callee.object);
    if (self != nullptr && tensors().is_tensor(self)) {
      Value tensor = trace.value(self);
      if (tensor.ref == 0) tensor.ref = trace.read(NodeKind::method_self, callee, nullptr, 0, self);
      trace.use(tensor);
    }
  }
  const size_t rate = place_of_rate(trace, callee.object, arguments, keywords);
  if (rate < arguments.size()) {
    const Result tensor = rate_as_tensor(trace, arguments[rate]);
    const Object held = Object::steal(tensor.object);
    if (!held) return {};
    std::vector<Value> taken(arguments.begin(), arguments.end());
    taken[rate] = {tensor.object, tensor.ref};
    return call_op(trace, kind, callee, taken, keywords);
  }
  if (const size_t place = place_of_number(callee.object, arguments, keywords);
      place < arguments.size()) {
    const Result number = read_number(trace, arguments[place]);
    const Object held = Object::steal(number.object);
    if (!held) return {};
    std::vector<Value> taken(arguments.begin(), arguments.end());
    taken[place] = {number.object, number.ref};
    return call_op(trace, kind, callee, taken, keywords);
  }
  PyObject* result;
  const size_t position = trace.log().position();
  if (kind == Kind::op) {
    result = call_on_tensors(trace, arguments, [&](std::span<const Value> given) {
      return call_plainly(callee.object, given, keywords);
    });
  } else {
    // Data is read in more ways than are seen, numbers that an object gives among them.
    if (code_among(trace, arguments) == ArgumentCode::followed && kind == Kind::from_data)
      trace.stop(BreakReason::c_callback, "a method of an object that a tensor is made of");
    // torch.overrides.has_torch_function and such look at types.
    const bool asks_types = name_in_c(callee.object).starts_with("_has_torch_function");
    for (const Value& argument : arguments) {
      if (asks_types && trace.is_lazy_number(argument))
        trace.guard_type(argument);
      else if (asks_types)
        use_in_op(trace, argument);
      else
        trace.use(argument);
    }
    const Unfollowed unfollowed(&trace);
    result = call_plainly(callee.object, arguments, keywords);
  }
  // It has looked at shapes itself, or may have.
  if (trace.sizes.any() && !has_tensors_only(result) && !tells_no_sizes(callee.object) &&
      !name_in_c(callee.object).starts_with("_has_torch_function")) {
    const bool sizes_only = tells_sizes_only(callee.object);
    if (PyCFunction_Check(callee.object) && PyCFunction_GET_SELF(callee.object) != nullptr)
      pin_sizes_in(trace, PyCFunction_GET_SELF(callee.object), sizes_only);
    for (const Value& argument : arguments) pin_sizes_in(trace, argument.object, sizes_only);
  }
  // It may have seen what was changed; in a cached call it comes before the changes.
  if (trace.active() && trace.log().has_effects(position) &&
      (trace.has_pending_change() || !trace.state.context_values.empty()))
    trace.stop(BreakReason::c_function, "an op that is not PyTorch's behind changes of objects");
  // Nothing says that it fails the next time.
  if (result == nullptr && trace.active() && trace.log().has_effects(position))
    trace.stop(BreakReason::raised, "an op that is not PyTorch's");
  if (result == nullptr && trace.state.transforms > 0)
    trace.stop(BreakReason::raised, "an op under a function transform");
  if (result != nullptr && is_atom(result))
    if (const auto number = trace.log().take_number(position); number && trace.active()) {
      const bool is_known = !arguments.empty() && is_fixed_tensor(trace, arguments[0]);
      return {result, is_known ? 0 : trace.number(result, *number)};
    }
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// __enter__ or __exit__ of an inference mode that the trace made.
bool switches_inference(Trace& trace, std::string_view name, std::span<const Value> arguments) {
  return (name == "__enter__" || name == "__exit__") && !arguments.empty() &&
         is_exactly(arguments[0].object, KnownType::inference_mode) &&
         trace.is_born(arguments[0].object);
}

bool changes_autograd(std::string_view name) {
  return name == "requires_grad_" || name == "retain_grad";
}

BreakReason reason_for(std::string_view name) {
  static const Set autograd{"requires_grad_", "retain_grad", "_register_hook_dict"};
  static const Set reads_contents{"tolist", "numpy", "__array__", "data_ptr"};
  if (autograd.contains(name)) return BreakReason::autograd;
  if (reads_contents.contains(name)) return BreakReason::data_dependent;
  const bool sets = name != "set_" && name != "set_data" &&
                    (name.starts_with("_set_") || name.starts_with("set_"));
  return sets ? BreakReason::state : BreakReason::c_function;
}

// torch.from_numpy(array), torch.tensor(array) of an array that was there before: each cached call
// makes the tensor anew, with its guards, of what is in the array then.
bool make_of_array(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* keywords,
                   Result* result) {
  static const Set kMakers{"from_numpy", "tensor", "as_tensor", "asarray"};
  if (arguments.empty() || !kMakers.contains(name_in_c(callee.object)) ||
      std::string_view(Py_TYPE(arguments[0].object)->tp_name) != "numpy.ndarray" ||
      !trace.is_tracked(arguments[0].object) || trace.is_born(arguments[0].object) ||
      !std::ranges::all_of(arguments.subspan(1), [](Value v) { return is_constant(v.object); }))
    return false;
  const size_t named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  const size_t positional = arguments.size() - named;
  if (positional == 0) return false;
  trace.guard_same(arguments[0]);
  const Object by_name = Object::steal(named == 0 ? nullptr : PyDict_New());
  for (size_t i = 0; i < named; ++i)
    PyDict_SetItem(by_name.get(), PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i)),
                   arguments[positional + i].object);
  for (const Value& argument : arguments.subspan(1)) trace.use(argument);
  {
    const Unfollowed unfollowed(&trace, false);
    result->object = call_plainly(callee.object, arguments, keywords);
  }
  if (result->object == nullptr) return true;
  result->ref = trace.remembered(callee.object, as_tuple(arguments.first(positional)).get(),
                                 by_name.get(), result->object);
  return true;
}

// t.numel(), t.size(0) of a tensor whose shape depends on contents.
bool ask_for_size(Trace& trace, PyObject* callee, std::span<const Value> arguments,
                  PyObject* keywords, Result* result) {
  if (Py_TYPE(callee) != &PyMethodDescr_Type || arguments.empty() || keywords != nullptr)
    return false;
  const std::string_view name = PyUnicode_AsUTF8(PyDescr_NAME(callee));
  std::optional<int> dimension;
  if (name == "size" && arguments.size() == 2 && PyLong_CheckExact(arguments[1].object) &&
      is_constant(arguments[1].object)) {
    dimension = static_cast<int>(PyLong_AsLong(arguments[1].object));
    trace.use(arguments[1]);
  } else if ((name != "numel" && name != "nelement") || arguments.size() != 1) {
    return false;
  }
  PyErr_Clear();
  const std::optional<Result> size = read_size(trace, arguments[0], dimension);
  if (size) *result = *size;
  return size.has_value();
}

}  // namespace

Result call_op_on(Trace& trace, Value op, std::span<const Value> arguments, PyObject* keywords) {
  return call_op(trace, Kind::op, op, arguments, keywords);
}

bool call_torch(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* keywords,
                Result* result) {
  const Kind kind = classify(callee.object);
  if (call_transform(*trace, callee, arguments, keywords, result)) return true;
  if (!trace->active()) return false;
  if ((kind == Kind::hidden || kind == Kind::from_data) &&
      make_of_array(*trace, callee, arguments, keywords, result))
    return true;
  switch (kind) {
    case Kind::none: return call_generator(*trace, callee, arguments, keywords, result);
    case Kind::hidden: {
      std::string name = PyCFunction_Check(callee.object)
                             ? reinterpret_cast<PyCFunctionObject*>(callee.object)->m_ml->ml_name
                             : text_of(PyDescr_NAME(callee.object));
      if (name == "new" && takes_sizes(arguments, keywords)) {
        *result = call_op(*trace, Kind::op, callee, arguments, keywords);
        return true;
      }
      if (switches_inference(*trace, name, arguments)) {
        *result = call_switch(*trace, callee, arguments, keywords);
        return true;
      }
      if (name == "_make_subclass" && make_parameter(*trace, callee, arguments, keywords, result))
        return true;
      if (call_state(*trace, callee, arguments, keywords, result)) return true;
      if (name == "tolist" && arguments.size() == 1 && keywords == nullptr &&
          is_fixed_tensor(*trace, arguments[0])) {
        *result = read_elements(*trace, callee, arguments);
        return true;
      }
      if (changes_autograd(name) && Py_TYPE(callee.object) == &PyMethodDescr_Type) {
        *result = call_on_graph(*trace, callee, arguments, keywords);
        return true;
      }
      trace->stop(reason_for(name), "torch's " + name);
      return false;
    }
    case Kind::from_data:
      if (Result made; make_of_number(*trace, callee, arguments, keywords, &made)) {
        *result = made;
        return true;
      }
      if (name_in_c(callee.object) == "as_tensor" && !arguments.empty() &&
          tensors().is_tensor(arguments[0].object)) {  // what to() does
        *result = call_op(*trace, Kind::op, callee, arguments, keywords);
        return true;
      }
      for (const Value& argument : arguments)
        if (holds_tensor(argument.object))
          trace->stop(BreakReason::foreign_tensor, "a tensor made of tensors as if they were data");
      *result = call_op(*trace, kind, callee, arguments, keywords);
      return true;
    case Kind::reads:
      // The ambient guard knows autocast on two kinds of devices.
      if (name_in_c(callee.object) == "get_autocast_dtype" &&
          !(arguments.size() == 1 && names_cpu_or_cuda(arguments[0].object))) {
        trace->stop(BreakReason::c_function, "torch.get_autocast_dtype of another device");
        return false;
      }
      // Of the message behind a ban on saved tensor hooks the ambient guard knows only that it is
      // there.
      if (!trace->state.bans_saved_hooks && says_why_hooks_are_banned(callee.object)) {
        trace->stop(BreakReason::state, "torch.autograd.graph.disable_saved_tensors_hooks");
        return false;
      }
      [[fallthrough]];
    case Kind::op:
      if (ask_for_varying_size(*trace, callee.object, arguments, keywords, result) ||
          ask_for_size(*trace, callee.object, arguments, keywords, result))
        return true;
      *result = call_op(*trace, kind, callee, arguments, keywords);
      return true;
    case Kind::writes: *result = call_switch(*trace, callee, arguments, keywords); return true;
  }
  return false;
}

}  // namespace smelt::bytecode
