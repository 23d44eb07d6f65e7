// Generator.get_state(), set_state() and manual_seed() of a generator for the CPU: ops of smelt's own
// (capture/log/generator_ops.cpp), which the log has in their place among those that draw.
// torch.random.fork_rng() is made of these. torch.manual_seed() goes through the generators of all kinds of
// devices; where the CPU is the only one, it seeds one.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "capture/bytecode/torch/torch_calls.h"

namespace smelt::bytecode {
namespace {

enum OwnOp : uint8_t { kGet, kSet, kSeed };

// As torch.ops finds it.
PyObject* own_op(OwnOp op) {
  static const auto find = [](const char* name) {
    const Object core = Object::steal(PyImport_ImportModule("torch._C"));
    PyObject* found =
        core ? PyObject_CallMethod(core.get(), "_get_operation_overload", "ss", name, "") : nullptr;
    PyErr_Clear();
    return found == nullptr ? nullptr : PyTuple_GET_ITEM(found, 0);
  };
  static PyObject* const ops[] = {find("smelt::rng_state"), find("smelt::set_rng_state"),
                                  find("smelt::seed")};
  return ops[op];
}

bool is_on_cpu(PyObject* generator) {
  const Object device = Object::steal(PyObject_GetAttrString(generator, "device"));
  const Object type =
      Object::steal(device ? PyObject_GetAttrString(device.get(), "type") : nullptr);
  PyErr_Clear();
  return type && PyUnicode_Check(type.get()) &&
         PyUnicode_CompareWithASCIIString(type.get(), "cpu") == 0;
}

bool is_generator(PyObject* object) {
  return std::string_view(Py_TYPE(object)->tp_name) == "torch._C.Generator";
}

// An int that an op can take.
bool is_seed(PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  int overflows = 0;
  PyLong_AsLongLongAndOverflow(object, &overflows);
  return overflows == 0;
}

std::optional<OwnOp> op_for(std::string_view name, std::span<const Value> arguments) {
  if (name == "get_state" && arguments.empty()) return kGet;
  if (arguments.size() != 1) return std::nullopt;
  if (name == "set_state" && tensors().is_tensor(arguments[0].object)) return kSet;
  if (name == "manual_seed" && is_seed(arguments[0].object)) return kSeed;
  return std::nullopt;
}

Result call_on_generator(Trace& trace, OwnOp op, Value generator,
                         std::span<const Value> arguments) {
  std::vector<Value> all{generator};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Result result = call_op_on(trace, {own_op(op), 0}, all);
  if (op == kGet || result.object == nullptr) return result;
  Py_DECREF(result.object);
  return {Py_NewRef(generator.object), generator.ref};
}

// Has no kind of device but the CPU a generator here?
bool has_cpu_only() {
  static const bool has = [] {
    const Object torch = Object::steal(PyImport_ImportModule("torch._C"));
    for (const char* name : {"_has_cuda", "_has_xpu", "_has_mps"}) {
      const Object flag =
          Object::steal(torch ? PyObject_GetAttrString(torch.get(), name) : nullptr);
      PyErr_Clear();
      if (flag.get() != Py_False) return false;
    }
    const Object other =
        Object::steal(PyObject_CallMethod(torch.get(), "_get_privateuse1_backend_name", nullptr));
    PyErr_Clear();
    return other && PyUnicode_Check(other.get()) &&
           PyUnicode_CompareWithASCIIString(other.get(), "privateuseone") == 0;
  }();
  return has;
}

}  // namespace

bool call_generator(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result) {
  if (keywords != nullptr) return false;
  PyObject* self = nullptr;
  std::string_view name;
  if (PyCFunction_Check(callee.object)) {
    self = PyCFunction_GET_SELF(callee.object);
    name = name_in_c(callee.object);
  } else if (Py_TYPE(callee.object) == &PyMethodDescr_Type && !arguments.empty()) {
    self = arguments[0].object;
    name = PyUnicode_AsUTF8(PyDescr_NAME(callee.object));
  }
  if (self == nullptr || !is_generator(self) || !is_on_cpu(self)) return false;
  Value generator = trace.value(self);
  if (PyCFunction_Check(callee.object)) {
    if (generator.ref == 0)
      generator.ref = trace.read(NodeKind::method_self, callee, nullptr, 0, self);
  } else {
    generator = arguments[0];
    arguments = arguments.subspan(1);
  }
  const auto op = op_for(name, arguments);
  if (!op || own_op(*op) == nullptr) return false;
  *result = call_on_generator(trace, *op, generator, arguments);
  return true;
}

bool call_manual_seed(Trace& trace, Value function, std::span<const Value> arguments,
                      PyObject* keywords, Result* result) {
  static PyObject* const name = PyUnicode_InternFromString("default_generator");
  if (keywords != nullptr || arguments.size() != 1 || !is_seed(arguments[0].object) ||
      own_op(kSeed) == nullptr || !has_cpu_only())
    return false;
  PyObject* globals = PyFunction_GET_GLOBALS(function.object);
  PyObject* generator = PyDict_GetItemWithError(globals, name);
  if (generator == nullptr || !is_generator(generator)) return false;
  trace.use(function);
  trace.hold(generator);
  *result = call_on_generator(trace, kSeed, {generator, trace.object_behind(generator)}, arguments);
  return true;
}

}  // namespace smelt::bytecode
