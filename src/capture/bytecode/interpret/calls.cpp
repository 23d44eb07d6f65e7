// Calls: Python functions are followed into, known C functions are called and accounted for, others
// end the graph.
#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/other_compilers.h"
#include "capture/bytecode/cpython/private_api.h"
#include "capture/bytecode/interpret/disabled.h"
#include "capture/bytecode/interpret/follow.h"
#include "capture/bytecode/nodes/messages.h"
#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

PyObject* as_object(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }

Result call_unfollowed(Trace& trace, BreakReason reason, Value callee,
                       std::span<const Value> arguments, PyObject* keywords) {
  const bool is_python = reason == BreakReason::c_function && PyFunction_Check(callee.object);
  trace.stop(is_python ? BreakReason::python_function : reason, describe_callee(callee.object));
  std::vector<Object> held{Object::share(callee.object)};  // so far the trace may have done that
  for (const Value& argument : arguments) held.push_back(Object::share(argument.object));
  end_stopped(trace);
  return {call_plainly(callee.object, arguments, keywords), 0};
}

// inspect.signature tells what a function is like, and the function is known by identity.
bool is_signature(PyObject* function) {
  return module_of(function) == "inspect" &&
         text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname) == "signature";
}

// How the filters of warnings are set and put back. Not where a list takes the warnings: C code
// fills it.
bool sets_filters(PyObject* function, std::span<const Value> arguments) {
  if (module_of(function) != "warnings") return false;
  static const std::unordered_set<std::string> kFunctions{"simplefilter",
                                                          "filterwarnings",
                                                          "_add_filter",
                                                          "catch_warnings.__init__",
                                                          "catch_warnings.__enter__",
                                                          "catch_warnings.__exit__"};
  const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname);
  if (!kFunctions.contains(name)) return false;
  if (!name.ends_with("__enter__")) return true;
  const Object records = Object::steal(
      arguments.empty() ? nullptr : PyObject_GetAttrString(arguments[0].object, "_record"));
  PyErr_Clear();
  return records.get() == Py_False;
}

BreakReason why_left_alone(PyObject* function) {
  const std::string_view module = module_of(function);
  const bool transforms =
      module.starts_with("torch._functorch") || module.starts_with("torch.func");
  return transforms ? BreakReason::transform : BreakReason::c_function;
}

// All that inspect.signature reads of a function: its code, defaults and annotations, and what it
// says of itself or of a function that it wraps. False: it says something else.
bool guard_signature(Trace& trace, Value function) {
  static const auto intern = [](const char* text) { return PyUnicode_InternFromString(text); };
  static PyObject* const fields[] = {intern("__defaults__"), intern("__kwdefaults__"),
                                     intern("__annotations__")};
  static PyObject* const own[] = {intern("__signature__"), intern("_partialmethod"),
                                  intern("__wrapped__")};
  constexpr int kMost = 16;  // functions that wrap each other
  for (int i = 0; i < kMost && PyFunction_Check(function.object); ++i) {
    if (trace.is_born(function.object)) return false;
    trace.guard_same(function);
    trace.guard_function(function);
    for (PyObject* name : fields) {
      const Result found = get_attribute(&trace, function, name);
      const Object held = Object::steal(found.object);
      if (!held) return false;
      const Value value{held.get(), found.ref};
      trace.guard_same(value);
      if (!PyDict_CheckExact(held.get())) continue;
      trace.guard_keys(value);
      PyObject *key, *item;
      Py_ssize_t at = 0;
      while (PyDict_Next(held.get(), &at, &key, &item))
        trace.guard_same({item, trace.read_dict(value, key, item)});
    }
    Value wrapped;
    for (PyObject* name : own) {
      const Result found = get_attribute(&trace, function, name);
      if (found.object == nullptr) {
        PyErr_Clear();
        continue;
      }
      const Object held = Object::steal(found.object);
      if (name != own[2]) return false;
      wrapped = {found.object, found.ref};
    }
    if (wrapped.object == nullptr) return trace.active();
    function = wrapped;
  }
  return false;
}

Result call_signature(Trace& trace, Value function, std::span<const Value> arguments,
                      PyObject* keywords) {
  const Value of = arguments.size() == 1 ? arguments[0] : Value{};
  Value inner = of;
  if (of.object != nullptr && PyMethod_Check(of.object)) {
    PyObject* behind = PyMethod_GET_FUNCTION(of.object);
    const Value method = trace.value(of.object, of.ref);
    inner = {behind, trace.read(NodeKind::method_function, method, nullptr, 0, behind)};
  }
  if (of.object == nullptr || !guard_signature(trace, inner))
    return call_unfollowed(trace, BreakReason::c_function, function, arguments, keywords);
  trace.use(of);
  PyObject* result;
  {
    const Unfollowed unfollowed(&trace);
    result = call_plainly(function.object, arguments, keywords);
  }
  return {result, result == nullptr ? 0 : trace.object_behind(result)};
}

// A method of a random.Random that the trace made.
bool is_of_own_random(const Trace& trace, PyObject* function, std::span<const Value> arguments) {
  return module_of(function) == "random" && !arguments.empty() &&
         trace.is_born(arguments[0].object) && is_exactly(arguments[0].object, KnownType::random);
}

// logger.info(text) of a logger that takes no note of it: that is found out by its own code.
bool is_silent_logging(Trace& trace, PyObject* function, std::span<const Value> arguments) {
  if (module_of(function) != "logging" || arguments.empty()) return false;
  static const std::unordered_map<std::string, int> kLevels{{"Logger.debug", 10},
                                                            {"Logger.info", 20},
                                                            {"Logger.warning", 30},
                                                            {"Logger.error", 40},
                                                            {"Logger.critical", 50},
                                                            {"Logger.isEnabledFor", -1},
                                                            {"Logger.getEffectiveLevel", -1}};
  const auto level =
      kLevels.find(text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname));
  if (level == kLevels.end()) return false;
  // The logger remembers what it says: what is followed is what every later call finds.
  const Unfollowed unfollowed(&trace, false);
  const Object asked = level->second < 0 ? Object::share(arguments.back().object)
                                         : Object::steal(PyLong_FromLong(level->second));
  const Object enabled =
      Object::steal(PyLong_CheckExact(asked.get())
                        ? PyObject_CallMethod(arguments[0].object, "isEnabledFor", "O", asked.get())
                        : nullptr);
  PyErr_Clear();
  return level->second < 0 || enabled.get() == Py_False;
}

// torch.cond with a number of Python's, which calls one of the branches. With a tensor it has another
// compiler look at both.
bool is_plain_cond(PyObject* function, std::span<const Value> arguments) {
  return !arguments.empty() &&
         (PyLong_Check(arguments[0].object) || PyFloat_CheckExact(arguments[0].object)) &&
         is_function_of(function, "torch._higher_order_ops.cond", "cond");
}

Result call_python(Trace& trace, Value function, std::span<const Value> arguments,
                   PyObject* keywords) {
  if (is_disabled(function.object))
    return call_unfollowed(trace, BreakReason::disabled, function, arguments, keywords);
  if (is_in_plain_module(function.object))
    return call_function(trace, function, arguments, keywords);
  if (PyObject* inner = behind_wrapper(function.object)) {
    trace.use(function);
    trace.hold(inner);
    return call(&trace, {inner, trace.object_behind(inner)}, arguments, keywords);
  }
  if (is_disabled_elsewhere(function.object))
    return call_unfollowed(trace, BreakReason::disabled_for_torch, function, arguments, keywords);
  // It goes through the generators of all kinds of devices, those that are not there too.
  if (is_function_of(function.object, "torch.random", "manual_seed")) {
    if (Result seeded; call_manual_seed(trace, function, arguments, keywords, &seeded))
      return seeded;
    return call_unfollowed(trace, BreakReason::state, function, arguments, keywords);
  }
  // What is compiled is what runs for True.
  if (is_function_of(function.object, "smelt._compile", "is_compiling")) {
    trace.use(function);
    return {Py_NewRef(Py_True), 0};
  }
  if (is_function_of(function.object, "torch._functorch.predispatch", "lazy_load_decompositions")) {
    trace.use(function);  // which is done once in a process, by whoever comes first
    const Unfollowed unfollowed(&trace, false, Trust::everybody);
    return {call_plainly(function.object, arguments, keywords), 0};
  }
  if (is_signature(function.object)) return call_signature(trace, function, arguments, keywords);
  if (Result result; call_autograd(trace, function, arguments, keywords, &result)) return result;
  if (Result result; call_about_gpus(trace, function, arguments, keywords, &result)) return result;
  if (Result result; call_profiler(trace, function, arguments, keywords, &result)) return result;
  if (Result result; call_copy(trace, function, arguments, keywords, &result)) return result;
  if (Result result; trace.active() && trace.state.transforms == 0 &&
                     call_checkpoint(trace, function, arguments, keywords, &result))
    return result;
  if (!trace.active()) return {call_plainly(function.object, arguments, keywords), 0};
  if (!is_followed(function.object) && !is_of_own_random(trace, function.object, arguments) &&
      !is_silent_logging(trace, function.object, arguments) &&
      !is_plain_cond(function.object, arguments) && !sets_filters(function.object, arguments))
    return call_unfollowed(trace, why_left_alone(function.object), function, arguments, keywords);
  return call_function(trace, function, arguments, keywords);
}

Result call_method(Trace& trace, Value method, std::span<const Value> arguments,
                   PyObject* keywords) {
  PyObject* function = PyMethod_GET_FUNCTION(method.object);
  PyObject* self = PyMethod_GET_SELF(method.object);
  const Object held = Object::share(method.object);
  std::vector<Value> all{{self, trace.read(NodeKind::method_self, method, nullptr, 0, self)}};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Ref ref = trace.read(NodeKind::method_function, method, nullptr, 0, function);
  return call(&trace, {function, ref}, all, keywords);
}

// functools.partial: its function, with its arguments in front and its keywords unless given anew.
Result call_partial(Trace& trace, Value partial, std::span<const Value> arguments,
                    PyObject* keywords) {
  static PyObject *func = PyUnicode_InternFromString("func"),
                  *args = PyUnicode_InternFromString("args"),
                  *kw = PyUnicode_InternFromString("keywords");
  std::vector<Object> held;
  const auto read = [&](PyObject* name) -> Value {
    const Result found = get_attribute(&trace, partial, name);
    held.push_back(Object::steal(found.object));
    return {found.object, found.ref};
  };
  const Value function = read(func), first = read(args), named = read(kw);
  if (!function.object || !first.object || !named.object) return {};
  std::vector<Result> front;
  if (!unpack(&trace, first, front)) return {};
  for (const Result& item : front) held.push_back(Object::steal(item.object));
  const size_t given_names =
      keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  const size_t positional = arguments.size() - given_names;
  std::vector<Value> all;
  for (const Result& item : front) all.push_back({item.object, item.ref});
  all.insert(all.end(), arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(positional));
  std::vector<PyObject*> all_names;
  trace.guard_keys(named);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(named.object, &at, &key, &value)) {
    bool given = false;
    for (size_t i = 0; i < given_names; ++i)
      given |= PyUnicode_Compare(PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i)), key) == 0;
    if (given) continue;
    all_names.push_back(key);
    all.push_back({value, trace.read_dict(named, key, value)});
  }
  for (size_t i = 0; i < given_names; ++i) {
    all_names.push_back(PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i)));
    all.push_back(arguments[positional + i]);
  }
  Object tuple;
  if (!all_names.empty()) {
    tuple = Object::steal(PyTuple_New(static_cast<Py_ssize_t>(all_names.size())));
    for (size_t i = 0; i < all_names.size(); ++i)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(all_names[i]));
  }
  return call(&trace, function, all, tuple.get());
}

// A weak reference, or a dict's with its key.
bool is_reference(PyObject* object) {
  return PyWeakref_CheckRef(object) && Py_TYPE(object)->tp_call == _PyWeakref_RefType.tp_call;
}

// torch.jit.script(function): the function that was scripted. What it returns is what the script
// does, but for containers: a script's are lists where Python has a torch.Size.
Object behind_script(PyObject* callee) {
  if (!is_exactly(callee, KnownType::script_function)) return {};
  Object function = Object::steal(PyObject_GetAttrString(callee, "_torchdynamo_inline"));
  const Object schema = Object::steal(PyObject_GetAttrString(callee, "schema"));
  const Object text = Object::steal(schema ? PyObject_Str(schema.get()) : nullptr);
  PyErr_Clear();
  if (!function || !PyFunction_Check(function.get()) || !text) return {};
  const std::string whole = text_of(text.get());
  const size_t arrow = whole.rfind("->");
  static constexpr std::string_view kPlain[] = {"-> Tensor", "-> int", "-> float", "-> bool"};
  const bool is_plain =
      arrow != std::string::npos &&
      std::ranges::find(kPlain, std::string_view(whole).substr(arrow)) != std::end(kPlain);
  return is_plain ? function : Object();
}

// ref(): what it leads to, which nothing but the reference itself says.
Result call_reference(Trace& trace, Value reference) {
  PyObject* found = PyWeakref_GET_OBJECT(reference.object);
  return {Py_NewRef(found), trace.read(NodeKind::referent, reference, nullptr, 0, found)};
}

bool is_partial(PyObject* object) {
  static PyTypeObject* type = [] {
    Object module = Object::steal(PyImport_ImportModule("functools"));
    return reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), "partial"));
  }();
  return Py_TYPE(object) == type;
}

PyObject* type_method(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }

// The C type whose storage the class has. nullptr: another kind of class.
PyTypeObject* storage_base(PyTypeObject* type) {
  static const std::vector<PyTypeObject*> bases = [] {
    std::vector<PyTypeObject*> found{&PyDict_Type, &PyList_Type, &PySet_Type};
    Object module = Object::steal(PyImport_ImportModule("collections"));
    for (const char* name : {"OrderedDict", "defaultdict", "deque"})
      found.push_back(reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), name)));
    return found;
  }();
  for (PyTypeObject* base = type; base != nullptr; base = base->tp_base)
    if (std::find(bases.begin(), bases.end(), base) != bases.end())
      return type != base ? base : nullptr;
  return nullptr;
}

// The same, where its __new__ leaves it empty whatever the arguments are, and __init__ fills it.
PyTypeObject* container_base(PyTypeObject* type) {
  PyTypeObject* base = storage_base(type);
  return base != nullptr && type->tp_new == base->tp_new ? base : nullptr;
}

// The __init__ that dict and list bring: it fills the new object as another method of theirs would.
PyObject* filling_method(PyTypeObject* base) {
  static PyObject *update = PyUnicode_InternFromString("update"),
                  *extend = PyUnicode_InternFromString("extend");
  if (base == &PyDict_Type) return _PyType_Lookup(base, update);
  return base == &PyList_Type ? _PyType_Lookup(base, extend) : nullptr;
}

// Is there nothing in a new object that __init__ would throw away first? A __new__ of the class's
// own may have put something there; dict.__init__ leaves it.
bool is_still_empty(PyObject* object, PyTypeObject* base) {
  return Py_TYPE(object)->tp_new == base->tp_new || base == &PyDict_Type ||
         (base == &PyList_Type && PyList_GET_SIZE(object) == 0);
}

// obj.__init__(*args), with CPython's check of what it returns.
bool initialise(Trace& trace, PyObject* object, Ref ref, std::span<const Value> arguments,
                PyObject* keywords) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* init = type_method(type, names().init);
  std::vector<Value> all{{object, ref}};
  all.insert(all.end(), arguments.begin(), arguments.end());
  if (init == nullptr || !PyFunction_Check(init)) {
    if (type->tp_init == PyBaseObject_Type.tp_init) return true;
    trace.read_type(type, names().init, init);
    PyTypeObject* base = storage_base(type);
    if (base != nullptr && type->tp_init == base->tp_init && is_still_empty(object, base)) {
      if (arguments.empty()) return true;
      const size_t named =
          keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
      const bool takes_these =
          arguments.size() - named <= 1 && (named == 0 || base == &PyDict_Type);
      if (PyObject* fill = takes_these ? filling_method(base) : nullptr) {
        const Result result = call(&trace, {fill, 0}, all, keywords);
        Py_XDECREF(result.object);
        return result.object != nullptr;
      }
    }
    trace.stop(BreakReason::c_function, std::string(type->tp_name) + ".__init__");
    Object bound = Object::steal(PyObject_GetAttr(object, names().init));
    return bound && Object::steal(call_plainly(bound.get(), arguments, keywords));
  }
  const Value own{init, trace.read_type(type, names().init, init)};
  const Object held = Object::steal(call(&trace, own, all, keywords).object);
  if (held && held.get() != Py_None) {
    PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'",
                 Py_TYPE(held.get())->tp_name);
    return false;
  }
  return static_cast<bool>(held);
}

// An object of a class written in Python, by the __new__ of `base`, which is in C and takes nothing
// but the class (an exception's keeps the arguments).
Result make_plain_object(Trace& trace, PyTypeObject* type, PyTypeObject* base,
                         std::span<const Value> arguments, PyObject* keywords) {
  Object new_function = Object::steal(PyObject_GetAttr(as_object(base), names().new_));
  trace.hold(new_function.get());
  std::vector<Value> inputs{{new_function.get(), 0}, {as_object(type), 0}};
  if (as_object(base) == PyExc_BaseException) {  // keeps them
    const size_t named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
    inputs.insert(inputs.end(), arguments.begin(), arguments.end() - static_cast<ptrdiff_t>(named));
  }
  PyObject* object = call_plainly(new_function.get(), std::span(inputs).subspan(1), nullptr);
  if (object == nullptr) return {};
  const Ref ref = trace.make(StepKind::call, inputs, object);
  if (!initialise(trace, object, ref, arguments, keywords)) {
    Py_DECREF(object);
    return {};
  }
  return {object, ref};
}

// Exceptions and struct sequences: made by calling the class again.
Result make_by_calling(Trace& trace, Value type, std::span<const Value> arguments,
                       PyObject* keywords) {
  for (const Value& argument : arguments)
    if (is_constant(argument.object)) trace.use(argument);
  PyObject* object = call_plainly(type.object, arguments, keywords);
  if (object == nullptr) return {};
  std::vector<Value> inputs{type};
  inputs.insert(inputs.end(), arguments.begin(), arguments.end());
  return {object, trace.make(StepKind::call, inputs, object, 0, keywords)};
}

// torch.return_types.max((values, indices))
bool makes_struct_sequence(PyTypeObject* type, std::span<const Value> arguments) {
  static PyObject* const fields = PyUnicode_InternFromString("n_sequence_fields");
  return type->tp_base == &PyTuple_Type && arguments.size() == 1 &&
         PyTuple_CheckExact(arguments[0].object) && _PyType_Lookup(type, fields) != nullptr &&
         !PyFunction_Check(_PyType_Lookup(type, names().new_));
}

Result make_transient(Trace& trace, Value type, std::span<const Value> arguments,
                      PyObject* keywords) {
  PyObject* object;
  {
    const Unfollowed unfollowed(&trace, false);
    object = call_plainly(type.object, arguments, keywords);
  }
  if (object == nullptr) return {};
  trace.transient(object);
  return {object, trace.ref_of(object)};
}

// types.SimpleNamespace(name=value): an empty one, and a store of each.
Result make_namespace(Trace& trace, Value type, std::span<const Value> values, PyObject* keywords) {
  Object made = Object::steal(PyObject_CallNoArgs(type.object));
  if (!made) return {};
  const Ref ref = trace.make(StepKind::call, std::span(&type, 1), made.get());
  for (size_t i = 0; i < values.size(); ++i)
    if (!set_attribute(&trace, {made.get(), ref},
                       PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i)), values[i]))
      return {};
  return {made.release(), ref};
}

bool makes_namespace(const PyTypeObject* type, std::span<const Value> arguments,
                     PyObject* keywords) {
  const size_t named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  return type == known_type(KnownType::simple_namespace) && arguments.size() == named;
}

// `by_type`: type.__call__ has been named, so that no metaclass's is asked.
Result call_type(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* keywords,
                 bool by_type = false) {
  auto* type = reinterpret_cast<PyTypeObject*>(callee.object);
  PyTypeObject* meta = Py_TYPE(type);
  trace.guard_same(callee);
  const bool asks_meta = !by_type && meta != &PyType_Type;
  if (asks_meta) trace.guard_type(callee);
  PyObject* own = asks_meta ? type_method(meta, names().call) : nullptr;
  const Ref own_ref = asks_meta ? trace.read_type(meta, names().call, own) : 0;
  if (own != nullptr && PyFunction_Check(own)) {
    Result made;
    if (call_builtin(&trace, callee, arguments, keywords, &made)) return made;  // Enum
    std::vector<Value> all{callee};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return call(&trace, {own, own_ref}, all, keywords);
  }
  if ((!by_type && meta->tp_call != PyType_Type.tp_call) ||
      !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    if (makes_namespace(type, arguments, keywords))
      return make_namespace(trace, callee, arguments, keywords);
    if (type == known_type(KnownType::inference_mode)) {
      // Being made switches it on, and it will put back the dispatch keys that it finds.
      const Unfollowed unfollowed(&trace, false);
      return make_by_calling(trace, callee, arguments, keywords);
    }
    if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) ||
        makes_struct_sequence(type, arguments))
      return make_by_calling(trace, callee, arguments, keywords);
    return call_unfollowed(trace, BreakReason::c_function, callee, arguments, keywords);
  }
  PyObject* make = type_method(type, names().new_);
  PyObject* init = type_method(type, names().init);
  const bool own_init = init != nullptr && PyFunction_Check(init);
  if (type->tp_new == PyBaseObject_Type.tp_new && (own_init || arguments.empty()) &&
      !(type->tp_flags & Py_TPFLAGS_IS_ABSTRACT)) {
    trace.read_type(type, names().new_, make);
    return make_plain_object(trace, type, &PyBaseObject_Type, arguments, keywords);
  }
  auto* exception = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  if (type->tp_new == exception->tp_new && own_init) {
    trace.read_type(type, names().new_, make);
    return make_plain_object(trace, type, exception, arguments, keywords);
  }
  if (PyTypeObject* base = container_base(type);
      base != nullptr && !(type->tp_flags & Py_TPFLAGS_IS_ABSTRACT)) {
    trace.read_type(type, names().new_, make);
    return make_plain_object(trace, type, base, arguments, keywords);
  }
  if (make != nullptr && Py_TYPE(make) == &PyStaticMethod_Type) {
    const Result maker = get_attribute(&trace, callee, names().new_);
    if (maker.object == nullptr) return {};
    Object held = Object::steal(maker.object);
    if (PyFunction_Check(maker.object)) {
      std::vector<Value> all{callee};
      all.insert(all.end(), arguments.begin(), arguments.end());
      const Result made = call(&trace, {maker.object, maker.ref}, all, keywords);
      if (made.object == nullptr || !PyObject_TypeCheck(made.object, type)) return made;
      if (!initialise(trace, made.object, made.ref, arguments, keywords)) {
        Py_DECREF(made.object);
        return {};
      }
      return made;
    }
  }
  if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) && !own_init)
    return make_by_calling(trace, callee, arguments, keywords);
  if (type == known_type(KnownType::lazy_property))  // made by torch.distributions to ask its type
    return make_transient(trace, callee, arguments, keywords);
  if (type == known_type(KnownType::random))  // __init__ is given the seed
    return make_plain_object(trace, type, type->tp_base, arguments, keywords);
  return call_unfollowed(trace, BreakReason::c_function, callee, arguments, keywords);
}

// super().__call__(...) in a metaclass: the class that is called. Empty: it is something else.
Object class_behind_call(PyObject* callee) {
  if (Py_TYPE(callee) != method_wrapper_type()) return {};
  const Object name = Object::steal(PyObject_GetAttrString(callee, "__name__"));
  const Object owner = Object::steal(PyObject_GetAttrString(callee, "__objclass__"));
  Object self = Object::steal(PyObject_GetAttr(callee, names().self));
  PyErr_Clear();
  const bool is_call = name && self && owner.get() == as_object(&PyType_Type) &&
                       PyType_Check(self.get()) && text_of(name.get()) == "__call__";
  return is_call ? self : Object();
}

// dict[str, int](): the class behind it, which takes no note of the rest if it is one in C.
Result call_alias(Trace& trace, Value alias, std::span<const Value> arguments, PyObject* keywords) {
  const Object origin = Object::steal(PyObject_GetAttrString(alias.object, "__origin__"));
  if (!origin) return {};
  const bool is_known = trace.is_tracked(alias.object) || is_constant(alias.object);
  if (!is_known || !PyType_Check(origin.get()) ||
      (reinterpret_cast<PyTypeObject*>(origin.get())->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return call_unfollowed(trace, BreakReason::c_function, alias, arguments, keywords);
  trace.guard_same(alias);
  trace.hold(origin.get());
  return call(&trace, {origin.get(), 0}, arguments, keywords);
}

bool is_compiled_function(PyObject* object) {
  return std::string_view(Py_TYPE(object)->tp_name) == "smelt._native.CompiledFunction";
}

// Something that smelt has compiled on its own, a function or a module, is code like any other
// inside a trace. The function behind it and the object it is bound to; false for what can't be
// followed.
bool unwrap_compiled(PyObject* callee, Object* function, Object* bound) {
  Object compiled = Object::share(callee);
  if (!is_compiled_function(callee)) {
    static PyObject* name = PyUnicode_InternFromString("_smelt_call");
    if (_PyType_Lookup(Py_TYPE(callee), name) == nullptr) return false;
    compiled = Object::steal(PyObject_GetAttr(callee, name));
    if (!compiled || !is_compiled_function(compiled.get())) {
      PyErr_Clear();
      return false;
    }
  }
  *function = Object::steal(PyObject_GetAttrString(compiled.get(), "_function"));
  *bound = Object::steal(PyObject_GetAttrString(compiled.get(), "_bound"));
  PyErr_Clear();
  return *function && PyFunction_Check(function->get());
}

Result call_compiled(Trace& trace, Value callee, PyObject* function, PyObject* bound,
                     std::span<const Value> arguments, PyObject* keywords) {
  trace.guard_same(callee);
  trace.hold(function);
  std::vector<Value> all;
  if (bound != nullptr && bound != Py_None) all.push_back({bound, trace.object_behind(bound)});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return call(&trace, {function, 0}, all, keywords);
}

}  // namespace

Result follow_call(Trace* trace, Value callee, std::span<const Value> arguments,
                   PyObject* keywords) {
  PyObject* object = callee.object;
  callee = trace->value(object, callee.ref);
  if (PyFunction_Check(object)) return call_python(*trace, callee, arguments, keywords);
  if (PyMethod_Check(object)) return call_method(*trace, callee, arguments, keywords);
  if (is_fixed(object))
    trace->guard_same(callee);
  else if (PyCFunction_Check(object) && !trace->is_born(object))
    return call_unfollowed(*trace, BreakReason::c_function, callee, arguments, keywords);
  Result result;
  if (call_torch(trace, callee, arguments, keywords, &result)) return result;
  if (!trace->active()) return {call_plainly(object, arguments, keywords), 0};
  PyTypeObject* meta = PyType_Check(object) ? Py_TYPE(object) : nullptr;
  const bool own_meta_call = meta != nullptr && meta->tp_call != PyType_Type.tp_call;
  if (!own_meta_call && call_builtin(trace, callee, arguments, keywords, &result)) return result;
  if (!trace->active()) return {call_plainly(object, arguments, keywords), 0};
  if (call_context_var(trace, callee, arguments, keywords, &result)) return result;
  if (PyType_Check(object)) return call_type(*trace, callee, arguments, keywords);
  if (Py_TYPE(object) == &Py_GenericAliasType)
    return call_alias(*trace, callee, arguments, keywords);
  if (is_reference(object) && arguments.empty() && trace->is_tracked(object))
    return call_reference(*trace, callee);
  if (is_partial(object)) return call_partial(*trace, callee, arguments, keywords);
  if (const Object cls = class_behind_call(object); cls && trace->is_born(object))
    return call_type(*trace, {cls.get(), 0}, arguments, keywords, true);
  if (const Object script = behind_script(object); script && trace->is_tracked(object)) {
    trace->guard_same(callee);
    trace->hold(script.get());
    return call(trace, {script.get(), 0}, arguments, keywords);
  }
  Object function, bound;
  if (unwrap_compiled(object, &function, &bound))
    return call_compiled(*trace, callee, function.get(), bound.get(), arguments, keywords);
  if (PyObject* method = _PyType_Lookup(Py_TYPE(object), names().call);
      method != nullptr && PyFunction_Check(method)) {
    trace->guard_type(callee);
    std::vector<Value> all{callee};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return call(trace, {method, trace->read_type(Py_TYPE(object), names().call, method)}, all,
                keywords);
  }
  return call_unfollowed(*trace, BreakReason::c_function, callee, arguments, keywords);
}

}  // namespace smelt::bytecode
