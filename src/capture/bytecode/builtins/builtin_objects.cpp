// Objects of C's that are not containers: functools' partial and lru_cache, locks, generators,
// exceptions.
#include <algorithm>
#include <string_view>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/names.h"

namespace smelt::bytecode {
namespace {

// Repeated as it is: a method that changes its object and gives back nothing but a constant.
bool repeat_method(BuiltinCall& c, Value self, std::span<const Value> arguments,
                   std::string_view name, Result* result, PyTypeObject* owner = nullptr) {
  const Object text =
      Object::steal(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  PyObject* method = _PyType_Lookup(owner ? owner : Py_TYPE(self.object), text.get());
  if (method == nullptr || !is_fixed(method)) return false;
  c.trace.guard_type(self);
  std::vector<Value> inputs{{method, 0}, self};
  inputs.insert(inputs.end(), arguments.begin(), arguments.end());
  c.trace.effect_call(inputs, c.keywords);
  result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  if (result->object == nullptr)
    c.trace.stop(BreakReason::raised, std::string(name));
  else if (!is_constant(result->object))
    c.trace.stop(BreakReason::unknown_object, Py_TYPE(result->object)->tp_name);
  return true;
}

// A generator of random numbers that the trace made draws the same in each call, once it has a
// seed.
bool draw(BuiltinCall& c, Value self, std::span<const Value> arguments, std::string_view name,
          PyTypeObject* owner, Result* result) {
  if (name == "seed" && (arguments.size() != 1 || arguments[0].object == Py_None)) return false;
  for (const Value& v : arguments)
    if (!is_atom(v.object)) return false;
  for (const Value& v : arguments) c.trace.use(v);
  return repeat_method(c, self, arguments, name, result, owner);
}

// _random.Random, for a class that is made of it; nullptr for others.
PyTypeObject* random_type(PyTypeObject* type) {
  while (type != nullptr && type != known_type(KnownType::random_in_c)) type = type->tp_base;
  return type;
}

// What a match that the trace made tells is as constant as what it was made of.
bool ask_match(BuiltinCall& c, Value self, std::span<const Value> arguments, Result* result) {
  if (!c.trace.is_born(self.object)) return false;
  for (const Value& v : arguments)
    if (!is_constant(v.object)) return false;
  for (const Value& v : arguments) c.trace.use(v);
  return c.plainly(result);
}

bool call_generator_method(BuiltinCall& c, Value self, std::span<const Value> arguments,
                           Result* result) {
  if (!c.trace.is_born(self.object) || c.has_keywords()) return false;
  for (const Value& v : arguments) {
    if (is_constant(v.object))
      c.trace.use(v);
    else if (!c.trace.is_tracked(v.object))
      return false;
  }
  {
    const Transparent transparent(&c.trace);
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  }
  if (result->object != nullptr) result->ref = c.trace.adopt(result->object);
  return true;
}

// module.__getattribute__(name), of a module without a class of its own.
bool read_module(BuiltinCall& c, Value module, std::span<const Value> arguments, Result* result) {
  if (arguments.size() != 1 || c.has_keywords() || !PyModule_CheckExact(module.object) ||
      !PyUnicode_Check(arguments[0].object))
    return false;
  c.trace.use(arguments[0]);
  *result = get_attribute(&c.trace, module, arguments[0].object);
  return true;
}

// with torch.device(...): a mode of torch functions is put on a stack and taken off it.
bool switch_device(BuiltinCall& c, Value device, std::span<const Value> arguments,
                   std::string_view name, Result* result) {
  PyObject* method =
      _PyType_Lookup(Py_TYPE(device.object), name == "__enter__" ? names().enter : names().exit);
  if (method == nullptr || !is_fixed(method) || c.has_keywords() ||
      !std::ranges::all_of(arguments, [](Value v) { return is_constant(v.object); }))
    return false;
  std::vector<Value> all{device};
  all.insert(all.end(), arguments.begin(), arguments.end());
  *result = call_switch(c.trace, {method, 0}, all, nullptr);
  return true;
}

}  // namespace

// function.__get__(object): a bound method.
bool bind_function(BuiltinCall& c, Value function, std::span<const Value> arguments,
                   Result* result) {
  if (arguments.empty() || c.has_keywords() || arguments[0].object == Py_None) return false;
  result->object = PyMethod_New(function.object, arguments[0].object);
  if (result->object == nullptr) return true;
  const Value inputs[] = {function, arguments[0]};
  result->ref = c.trace.make(StepKind::bound_method, inputs, result->object);
  return true;
}

bool makes_match(const PyTypeObject* owner, std::string_view name) {
  return owner == known_type(KnownType::pattern) &&
         (name == "match" || name == "fullmatch" || name == "search");
}

bool make_match(BuiltinCall& c, Value pattern, std::span<const Value> arguments,
                std::string_view name, Result* result) {
  // An object of a class of strings (torch.__version__) stands for its text as long as it is there.
  const auto is_text = [&](const Value& v) {
    return PyUnicode_Check(v.object) && !c.trace.is_born(v.object) && v.ref != 0;
  };
  for (const Value& v : arguments)
    if (!is_atom(v.object) && !is_text(v)) return false;
  for (const Value& v : arguments) use_key(c.trace, v);
  result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  if (result->object == nullptr || !is_match(result->object)) return true;
  const Object text =
      Object::steal(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  PyObject* method = _PyType_Lookup(Py_TYPE(pattern.object), text.get());
  std::vector<Value> inputs{{method, 0}, {pattern.object, 0}};
  for (const Value& v : arguments) inputs.push_back({v.object, 0});
  result->ref = c.trace.make(StepKind::call, inputs, result->object, 0, c.keywords);
  return true;
}

bool make_matches(BuiltinCall& c, std::span<const Value> arguments, Result* result) {
  for (const Value& v : arguments)
    if (!is_atom(v.object)) return false;
  for (const Value& v : arguments) c.trace.use(v);
  result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  if (result->object == nullptr) return true;
  c.trace.transient(result->object);
  result->ref = c.trace.ref_of(result->object);
  return true;
}

namespace {

// A method of `type`, bound to a class whose own class has none of that name: super() in one that
// has.
bool is_method_of_type(PyObject* callee, std::string_view name) {
  if (!PyCFunction_Check(callee) || !PyType_Check(PyCFunction_GET_SELF(callee))) return false;
  const Object text = Object::steal(PyUnicode_FromString(std::string(name).c_str()));
  PyObject* found = text ? _PyType_Lookup(&PyType_Type, text.get()) : nullptr;
  return found != nullptr && Py_TYPE(found) == &PyMethodDescr_Type &&
         reinterpret_cast<PyMethodDescrObject*>(found)->d_method->ml_meth ==
             PyCFunction_GET_FUNCTION(callee);
}

}  // namespace

bool call_method_of_object(BuiltinCall& c, Value self, std::span<const Value> arguments,
                           std::string_view name, PyTypeObject* owner, Result* result) {
  const std::string_view type = owner->tp_name;
  if (owner == &PyGen_Type && (name == "send" || name == "throw" || name == "close"))
    return call_generator_method(c, self, arguments, result);
  if ((type == "_thread.RLock" || type == "_thread.lock") &&
      (name == "acquire" || name == "release" || name == "__enter__" || name == "__exit__")) {
    for (const Value& v : arguments)
      if (!is_constant(v.object)) return false;
    return repeat_method(c, self, arguments, name, result);
  }
  if (type == "re.Match") return ask_match(c, self, arguments, result);
  if ((name == "seed" || name == "random" || name == "getrandbits") &&
      random_type(owner) != nullptr && c.trace.is_born(self.object))
    return draw(c, self, arguments, name, random_type(owner), result);
  if ((owner == &PyType_Type || is_method_of_type(c.callee.object, name)) && !c.has_keywords() &&
      call_type_check(c.trace, self, arguments, name, result))
    return true;
  if (owner == &PyModule_Type && name == "__getattribute__")
    return read_module(c, self, arguments, result);
  if (type == "torch.device" && (name == "__enter__" || name == "__exit__"))
    return switch_device(c, self, arguments, name, result);
  if (owner == &PyFunction_Type && name == "__get__")
    return bind_function(c, self, arguments, result);
  const bool is_exception =
      PyType_IsSubtype(owner, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
  if (is_exception && name == "__init__" && !c.has_keywords() && c.trace.is_born(self.object)) {
    for (const Value& v : arguments) {
      if (is_constant(v.object))
        c.trace.use(v);
      else if (!c.trace.is_tracked(v.object))
        return false;
    }
    // The class that was named, not the object's own.
    std::vector<Value> inputs;
    if (Py_TYPE(c.callee.object) == &PyWrapperDescr_Type) {
      inputs.push_back({c.callee.object, 0});
    } else {
      PyObject* method = _PyType_Lookup(owner, names().init);
      if (method == nullptr || !is_fixed(method)) return false;
      inputs.push_back({method, 0});
    }
    inputs.push_back(self);
    inputs.insert(inputs.end(), arguments.begin(), arguments.end());
    c.trace.effect_call(inputs, nullptr);
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
    if (result->object == nullptr) c.trace.stop(BreakReason::raised, "__init__");
    return true;
  }
  return false;
}

// str(x), repr(x): the class's own method, or C's for an exception whose arguments are known.
bool call_text(BuiltinCall& c, PyObject* name, Result* result) {
  if (c.count() != 1 || c.has_keywords()) return c.on_constants(result);
  const Value v = c.argument(0);
  if (is_constant(v.object) || tensors().is_tensor(v.object)) return c.on_constants(result);
  static PyObject* repr = PyUnicode_InternFromString("__repr__");
  PyObject* method = python_method(v.object, name);
  PyObject* called = name;
  const bool is_exception = PyExceptionInstance_Check(v.object);
  if (method == nullptr && !is_exception && Py_TYPE(v.object)->tp_str == PyBaseObject_Type.tp_str) {
    method = python_method(v.object, repr);
    called = repr;
  }
  if (method != nullptr) {
    *result = c.call_special(method, called, v);
    if (result->object != nullptr && !PyUnicode_Check(result->object)) {
      PyErr_Format(PyExc_TypeError, "%U returned non-string (type %.200s)", called,
                   Py_TYPE(result->object)->tp_name);
      Py_CLEAR(result->object);
    }
    return true;
  }
  const auto* type = Py_TYPE(v.object);
  auto* base = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  auto* key_error = reinterpret_cast<PyTypeObject*>(PyExc_KeyError);
  const bool by_arguments = is_exception &&
                            (type->tp_str == base->tp_str || type->tp_str == key_error->tp_str) &&
                            type->tp_repr == base->tp_repr;
  if (!by_arguments) return c.on_constants(result);
  static PyObject* args = PyUnicode_InternFromString("args");
  const Result arguments = get_attribute(&c.trace, v, args);
  if (arguments.object == nullptr) return true;
  c.trace.use({arguments.object, arguments.ref});
  Py_DECREF(arguments.object);
  {
    const Transparent transparent(&c.trace, true);
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  }
  return true;
}

bool make_partial(BuiltinCall& c, Result* result) {
  if (c.count() == 0) return c.plainly(result);
  // What another one has is taken over.
  if (Py_TYPE(c.argument(0).object) == reinterpret_cast<PyTypeObject*>(c.callee.object)) {
    static PyObject* const parts[] = {PyUnicode_InternFromString("func"),
                                      PyUnicode_InternFromString("args"),
                                      PyUnicode_InternFromString("keywords")};
    for (PyObject* name : parts) {
      const Result part = get_attribute(&c.trace, c.argument(0), name);
      const Object held = Object::steal(part.object);
      if (!held) return true;
      c.trace.use({part.object, part.ref});
    }
    if (!c.trace.active()) return false;
  }
  std::vector<Value> inputs{c.callee};
  for (const Value& v : c.arguments) {
    if (v.ref == 0 && !is_constant(v.object) && !c.trace.is_tracked(v.object)) return false;
    inputs.push_back(v);
  }
  result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  if (result->object == nullptr) return true;
  result->ref = c.trace.make(StepKind::call, inputs, result->object, 0, c.keywords);
  for (const char* name : {"args", "keywords"}) {
    const Object part = Object::steal(PyObject_GetAttrString(result->object, name));
    if (part) c.trace.adopt(part.get());
  }
  PyErr_Clear();
  return true;
}

bool count_elements(BuiltinCall& c, Result* result) {
  if (c.count() != 2 || c.has_keywords() || !PyDict_Check(c.argument(0).object)) return false;
  const Value counts = c.argument(0);
  static PyObject* get = PyUnicode_InternFromString("get");
  for (PyObject* own : {names().setitem, names().getitem, get})
    if (python_method(counts.object, own) != nullptr) return false;
  PyObject* counted = c.argument(1).object;
  if (PyList_Check(counted) || PyTuple_Check(counted))
    for (Py_ssize_t i = 0; i < Py_SIZE(counted); ++i)
      if (is_hashed_by_code(PySequence_Fast_GET_ITEM(counted, i))) return false;
  std::vector<Result> items;
  bool ok = unpack(&c.trace, c.argument(1), items);
  const Object one = Object::steal(PyLong_FromLong(1));
  for (const Result& item : items) {
    const Value key{item.object, item.ref};
    if (ok) {
      const Result has = contains(&c.trace, counts, key, false);
      ok = has.object != nullptr;
      Result count{one.get(), 0};
      Object held = Object::share(one.get());
      if (ok && has.object == Py_True) {
        const Result before = get_storage_item(c.trace, counts, key);
        ok = before.object != nullptr;
        if (ok)
          count = binary(&c.trace, 0 /* NB_ADD */, {before.object, before.ref}, {one.get(), 0});
        Py_XDECREF(before.object);
        ok = ok && count.object != nullptr;
        held = Object::steal(count.object);
      }
      Py_XDECREF(has.object);
      ok = ok && set_item(&c.trace, counts, key, {count.object, count.ref});
    }
    Py_DECREF(item.object);
  }
  if (ok) *result = {Py_NewRef(Py_None), 0};
  return true;
}

}  // namespace smelt::bytecode
