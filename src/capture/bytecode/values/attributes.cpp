// Attribute access as object.__getattribute__ does it, step by step, so that each place that was
// looked at is known.
#include <opcode.h>

#include <algorithm>
#include <unordered_set>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/values/attribute_lookup.h"
#include "capture/bytecode/values/dynamic_tensors.h"
#include "capture/bytecode/values/module_state.h"
#include "capture/bytecode/values/operations.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {

// A method in C as a class has it, also one taken for a special method: `__getattr__ = dict.get`.
bool is_method_in_c(PyObject* found) {
  return Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type;
}

// The instance's __dict__, made if there is none yet; nullptr if the type has none.
Object dict_of(PyObject* object) {
  if (_PyObject_GetDictPtr(object) == nullptr) return {};
  Object dict = Object::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear();
  return dict;
}

Value field(Trace& trace, Value object, PyObject* name, PyObject* found) {
  return {found, trace.read(NodeKind::attribute, object, name, 0, found)};
}

// threading.local: each thread has a dict of its own, which a cached call asks for again.
// Not a subclass: its __init__ is called by whichever thread asks first.
bool is_thread_local(PyObject* object) { return is_exactly(object, KnownType::thread_local_); }

Object thread_dict(Trace& trace, Value local, Ref* ref) {
  Object dict = Object::steal(PyObject_GetAttr(local.object, names().dict));
  trace.guard_type(local);
  if (dict) *ref = trace.read(NodeKind::attribute, local, names().dict, 0, dict.get());
  return dict;
}

// False: the class has something by that name, or the object has come to be just now.
bool has_in_thread_only(Trace& trace, Value local, PyObject* name) {
  PyTypeObject* type = Py_TYPE(local.object);
  if (trace.is_born(local.object) || _PyType_Lookup(type, name) != nullptr ||
      _PyType_Lookup(type, names().getattr) != nullptr)
    return false;
  trace.read_type(type, name, nullptr);
  return true;
}

namespace {

PyObject* as_object(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }

bool is_data_descriptor(PyObject* attribute) {
  return Py_TYPE(attribute)->tp_descr_set != nullptr && Py_TYPE(attribute)->tp_descr_get != nullptr;
}

// object.__getattribute__, or that of a type in C with the same code.
bool is_generic_getter(PyObject* found) {
  return found != nullptr && Py_TYPE(found) == &PyWrapperDescr_Type &&
         reinterpret_cast<PyWrapperDescrObject*>(found)->d_wrapped ==
             reinterpret_cast<void*>(PyObject_GenericGetAttr);
}

// object.__getattribute__ it is, with or without a __getattr__ behind it.
bool is_generic(PyTypeObject* type, PyObject** fallback) {
  *fallback = nullptr;
  if (type->tp_getattro == PyObject_GenericGetAttr) return true;
  if (!is_generic_getter(_PyType_Lookup(type, names().getattribute))) return false;
  *fallback = _PyType_Lookup(type, names().getattr);
  return *fallback != nullptr && (PyFunction_Check(*fallback) || is_method_in_c(*fallback));
}

Result unfollowed_attribute(Trace* trace, Value object, PyObject* name) {
  if (is_following(trace))
    trace->stop(BreakReason::attribute,
                std::string(Py_TYPE(object.object)->tp_name) + "." + text_of(name));
  return {PyObject_GetAttr(object.object, name), 0};
}

// A field of an object that the trace made.
Ref read_of_made(Trace& trace, Value object, PyObject* name, PyObject* found, int holders) {
  if (is_plain_number(found)) return trace.read(NodeKind::attribute, object, name, 0, found);
  return trace.adopt(found, holders);
}

// A getter in C that reads a field: what it gives is where it was read.
Result read_field(Trace& trace, Value object, PyObject* name) {
  // Not by a __getattribute__ of the class's own, which may be what came here.
  PyObject* found = PyObject_GenericGetAttr(object.object, name);
  if (found == nullptr) {
    // A slot that has nothing yet: nothing tells when it has.
    if (!trace.is_born(object.object) && !tensors().is_tensor(object.object))
      trace.stop(BreakReason::raised, "reading " + text_of(name));
    trace.use(object);
    return {};
  }
  if (trace.is_born(object.object)) {
    if (is_function_context(object.object) && PyTuple_Check(found))
      trace.log().meet_saved(object.object, found);
    // What raising has put into an exception.
    const bool is_put_in = PyTraceBack_Check(found) || PyExceptionInstance_Check(found);
    if (PyExceptionInstance_Check(object.object) && is_put_in && !trace.is_tracked(found))
      trace.transient(found);
    return {found, read_of_made(trace, object, name, found, 1)};
  }
  return {found, trace.read(NodeKind::attribute, object, name, 0, found)};
}

Result bind_method(Trace& trace, Value function, Value self) {
  PyObject* method = PyMethod_New(function.object, self.object);
  if (method == nullptr) return {};
  const Value inputs[] = {function, self};
  return {method, trace.make(StepKind::bound_method, inputs, method)};
}

// getattr(object, name) is done again by a cached call that needs the result: bound methods of C
// types.
Result remake_by_getattr(Trace& trace, Value object, PyObject* name, PyObject* found) {
  if (found == nullptr) return {};
  const Value inputs[] = {{names().getattr_function, 0}, object, {name, 0}};
  return {found, trace.make(StepKind::call, inputs, found)};
}

// attribute.__get__(object, type), for an attribute that was found in the type. object may be empty
// (a class attribute).
Result call_getter(Trace& trace, Value attribute, Value object, PyTypeObject* type,
                   PyObject* name) {
  PyObject* found = attribute.object;
  PyTypeObject* kind = Py_TYPE(found);
  if (PyFunction_Check(found)) {
    if (object.object == nullptr) return {Py_NewRef(found), attribute.ref};
    return bind_method(trace, attribute, object);
  }
  if (kind == &PyStaticMethod_Type) {
    Object function = Object::steal(PyObject_GetAttr(found, names().func));
    const Value inner = field(trace, attribute, names().func, function.get());
    return {function.release(), inner.ref};
  }
  if (kind == &PyClassMethod_Type) {
    Object function = Object::steal(PyObject_GetAttr(found, names().func));
    if (!PyFunction_Check(function.get())) {
      trace.stop(BreakReason::attribute, text_of(name));
      return {kind->tp_descr_get(found, object.object, as_object(type)), 0};
    }
    const Value inner = field(trace, attribute, names().func, function.get());
    return bind_method(trace, inner, trace.value(as_object(type)));
  }
  const bool is_property =
      kind == &PyProperty_Type || (PyType_IsSubtype(kind, &PyProperty_Type) &&
                                   kind->tp_descr_get == PyProperty_Type.tp_descr_get);
  if (is_property) {
    if (object.object == nullptr) return {Py_NewRef(found), attribute.ref};
    Object getter = Object::steal(PyObject_GetAttr(found, names().fget));
    if (getter && getter.get() != Py_None) {
      const Value inner = field(trace, attribute, names().fget, getter.get());
      return call(&trace, inner, std::span(&object, 1), nullptr);
    }
  }
  if (PyObject* get = _PyType_Lookup(kind, names().get); get != nullptr && PyFunction_Check(get)) {
    const Ref ref = trace.read_type(kind, names().get, get);
    const Value arguments[] = {
        attribute, object.object ? object : Value{Py_None, 0}, {as_object(type), 0}};
    return call(&trace, {get, ref}, arguments, nullptr);
  }
  if (object.object != nullptr && PyTuple_Check(object.object) &&
      kind == known_type(KnownType::tuple_getter)) {
    const Object state = Object::steal(PyObject_CallMethod(found, "__reduce__", nullptr));
    if (!state) return {};
    const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(state.get(), 1), 0));
    PyObject* item = kind->tp_descr_get(found, object.object, as_object(type));
    return {item, item == nullptr ? 0 : trace.read_item(object, at, item)};
  }
  if (kind == &PyInstanceMethod_Type && object.object != nullptr) {  // pybind11's methods
    PyObject* function = PyInstanceMethod_GET_FUNCTION(found);
    return bind_method(trace, field(trace, attribute, names().func, function), object);
  }
  PyObject* result = kind->tp_descr_get(found, object.object, as_object(type));
  if (result == nullptr || !trace.active() || is_constant(result)) return {result, 0};
  if (object.object != nullptr && is_method_in_c(found)) {
    if (_PyType_Lookup(Py_TYPE(object.object), name) == found)
      return remake_by_getattr(trace, object, name, result);
    const Value inputs[] = {{found, 0}, object};  // super()'s: the object's class has another
    return {result, trace.make(StepKind::bound_method, inputs, result)};
  }
  if (object.object == nullptr || kind == &PyClassMethodDescr_Type)
    return remake_by_getattr(trace, {as_object(type), 0}, name, result);
  trace.stop(BreakReason::attribute,
             std::string(Py_TYPE(object.object)->tp_name) + "." + text_of(name));
  return {result, 0};
}

// What a class of modules (torch.ops, torch._VF) adds to types.ModuleType.
Result get_from_module_type(Trace& trace, Value module, PyObject* name) {
  PyTypeObject* type = Py_TYPE(module.object);
  if (PyObject* found = _PyType_Lookup(type, name)) {
    const Ref ref = trace.read_type(type, name, found);
    if (Py_TYPE(found)->tp_descr_get == nullptr) return {Py_NewRef(found), ref};
    return call_getter(trace, {found, ref}, module, type, name);
  }
  if (PyObject* fallback = _PyType_Lookup(type, names().getattr);
      fallback && PyFunction_Check(fallback)) {
    const Value arguments[] = {module, {name, 0}};
    return call(&trace, {fallback, trace.read_type(type, names().getattr, fallback)}, arguments,
                nullptr);
  }
  PyObject* result = PyObject_GetAttr(module.object, name);
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// One of torch's own that it loads when it is first asked for: from then on it is there.
bool is_lazy_module(PyObject* dict, PyObject* name) {
  if (library_of(dict) != "torch") return false;
  PyObject* lazy = PyDict_GetItemString(dict, "_lazy_modules");
  return lazy != nullptr && PyAnySet_Check(lazy) && PySet_Contains(lazy, name) == 1;
}

Result get_module_attribute(Trace& trace, Value module, PyObject* name) {
  PyObject* dict = PyModule_GetDict(module.object);
  trace.guard_same(module);
  trace.guard_type(module);
  PyTypeObject* type = Py_TYPE(module.object);
  if (PyObject* of_type = _PyType_Lookup(type, name); of_type && is_data_descriptor(of_type))
    return get_from_module_type(trace, module, name);
  if (type != &PyModule_Type) trace.read_type(type, name, _PyType_Lookup(type, name));
  if (PyObject* found = PyDict_GetItemWithError(dict, name))
    return {Py_NewRef(found), trace.read_dict({dict, 0}, name, found)};
  PyObject* fallback = PyDict_GetItemWithError(dict, names().getattr);
  if (is_lazy_module(dict, name)) {
    {
      const Unfollowed unfollowed(&trace, false, Trust::everybody);
      const Object loaded = Object::steal(PyObject_GetAttr(module.object, name));
      if (!loaded) return {};
    }
    if (PyObject* found = PyDict_GetItemWithError(dict, name))
      return {Py_NewRef(found), trace.read_dict({dict, 0}, name, found)};
  }
  trace.read_absent({dict, 0}, name);
  if (fallback == nullptr) trace.read_absent({dict, 0}, names().getattr);
  if (fallback == nullptr || !PyFunction_Check(fallback))
    return get_from_module_type(trace, module, name);
  const Value argument{name, 0};
  return call(&trace, {fallback, trace.read_dict({dict, 0}, names().getattr, fallback)},
              std::span(&argument, 1), nullptr);
}

Result get_by_own_code(Trace& trace, Value object, PyObject* name, PyObject* own,
                       PyObject* fallback);

// What a class in C has by its own __getattribute__ (pybind11's): fixed as long as the class is.
Result get_from_class_in_c(Trace& trace, Value type, PyObject* name) {
  PyObject* result;
  {
    const Unfollowed unfollowed(&trace);
    result = PyObject_GetAttr(type.object, name);
  }
  if (result == nullptr || is_constant(result) || trace.is_tracked(result))
    return {result, result == nullptr ? 0 : trace.ref_of(result)};
  return remake_by_getattr(trace, type, name, result);
}

// __name__, __mro__, __dict__ of a class: fields in C, which may be set.
Result get_type_field(Trace& trace, Value type, PyObject* name) {
  PyObject* result = PyObject_GetAttr(type.object, name);
  if (result == nullptr) {
    trace.stop(BreakReason::exception, "reading " + text_of(name));
    return {};
  }
  if (Py_TYPE(result) == &PyDictProxy_Type) {  // Cls.__dict__
    trace.views.insert(result);
    return remake_by_getattr(trace, type, name, result);
  }
  return {result, trace.read(NodeKind::attribute, type, name, 0, result)};
}

// A member of an Enum, which nothing can put in another's place; by a descriptor in Python, from
// 3.11 on.
bool is_of_enumeration(PyTypeObject* cls, PyObject* descriptor) {
  if (Py_TYPE(cls) != known_type(KnownType::enum_meta) ||
      !is_exactly(descriptor, KnownType::enum_property))
    return false;
  static PyObject* const member = PyUnicode_InternFromString("member");
  const Object found = Object::steal(PyObject_GetAttr(descriptor, member));
  PyErr_Clear();
  return found && Py_TYPE(found.get()) == cls;
}

// Cls.name, as type.__getattribute__ does it.
Result get_type_attribute(Trace& trace, Value type, PyObject* name) {
  auto* cls = reinterpret_cast<PyTypeObject*>(type.object);
  PyTypeObject* meta = Py_TYPE(cls);
  trace.guard_same(type);
  if (meta != &PyType_Type) trace.guard_type(type);
  PyObject* fallback = nullptr;
  if (meta->tp_getattro != PyType_Type.tp_getattro) {
    static PyObject* const generic = _PyType_Lookup(&PyType_Type, names().getattribute);
    PyObject* own = _PyType_Lookup(meta, names().getattribute);
    fallback = _PyType_Lookup(meta, names().getattr);
    if (fallback != nullptr && !PyFunction_Check(fallback))
      return unfollowed_attribute(&trace, type, name);
    if (own != generic)
      return own != nullptr && PyFunction_Check(own)
                 ? get_by_own_code(trace, type, name, own, fallback)
                 : get_from_class_in_c(trace, type, name);
  }
  const Object of_meta = Object::share(_PyType_Lookup(meta, name));
  const Ref meta_ref = trace.read_type(meta, name, of_meta.get());
  const auto get_of_meta = [&] {
    PyTypeObject* kind = Py_TYPE(of_meta.get());
    if (kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type)
      return get_type_field(trace, type, name);
    if (kind->tp_descr_get == nullptr) return Result{Py_NewRef(of_meta.get()), meta_ref};
    return call_getter(trace, {of_meta.get(), meta_ref}, type, meta, name);
  };
  const bool meta_first = of_meta && is_data_descriptor(of_meta.get());
  const Object found = Object::share(meta_first ? nullptr : _PyType_Lookup(cls, name));
  if (!meta_first) {
    const Ref ref = trace.read_type(cls, name, found.get());
    if (found && Py_TYPE(found.get())->tp_descr_get == nullptr)
      return {Py_NewRef(found.get()), ref};
    if (found && is_of_enumeration(cls, found.get())) return get_from_class_in_c(trace, type, name);
    if (found) return call_getter(trace, {found.get(), ref}, {}, cls, name);
  }
  const Result result =
      of_meta ? get_of_meta() : Result{PyType_Type.tp_getattro(type.object, name), 0};  // raises
  if (result.object != nullptr || fallback == nullptr ||
      !PyErr_ExceptionMatches(PyExc_AttributeError))
    return result;
  PyErr_Clear();
  const Value arguments[] = {type, {name, 0}};
  return call(&trace, {fallback, trace.read_type(meta, names().getattr, fallback)}, arguments,
              nullptr);
}

PyObject* super_field(PyObject* super, const char* name) {
  Object found = Object::steal(PyObject_GetAttrString(super, name));
  PyErr_Clear();
  return found.get();  // kept alive by the super object
}

// super().name: the types behind the class in the order of the instance's.
Result get_super_attribute(Trace& trace, Value super, PyObject* name) {
  PyObject* after = super_field(super.object, "__thisclass__");
  PyObject* self = super_field(super.object, "__self__");
  PyObject* start = super_field(super.object, "__self_class__");
  if (after == nullptr || self == nullptr || start == nullptr || start == Py_None)
    return unfollowed_attribute(&trace, super, name);
  auto* type = reinterpret_cast<PyTypeObject*>(start);
  PyObject* mro = type->tp_mro;
  Py_ssize_t i = 0;
  while (i < PyTuple_GET_SIZE(mro) && PyTuple_GET_ITEM(mro, i) != after) ++i;
  const Value self_value = trace.value(self);
  if (!trace.is_born(self)) trace.guard_type(self_value);
  trace.read_type(type, names().cls, _PyType_Lookup(type, names().cls));  // and its bases
  for (++i; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    const Object dict = own_dict(base);
    PyObject* found = PyDict_GetItemWithError(dict.get(), name);
    if (found == nullptr) {
      trace.read_type(base, name, _PyType_Lookup(base, name));
      continue;
    }
    const Ref ref = trace.read_type(base, name, found);
    if (Py_TYPE(found)->tp_descr_get == nullptr) return {Py_NewRef(found), ref};
    const bool on_class = PyType_Check(self) && self == start;
    return call_getter(trace, {found, ref}, on_class ? Value{} : self_value, type, name);
  }
  return {PyObject_GetAttr(super.object, name), 0};
}

// Of a tensor from outside it is what it was at the start, and one more for each write since.
Result read_version(Trace& trace, Value tensor, PyObject* name) {
  PyObject* found = PyObject_GetAttr(tensor.object, name);
  if (found == nullptr || !trace.active()) return {found, 0};
  const std::optional<int64_t> rise = trace.log().version_rise(tensor.object);
  if (!rise) trace.stop(BreakReason::attribute, "_version of a view");
  if (!rise || trace.is_born(tensor.object)) return {found, 0};
  const Object version = Object::steal(found);
  const Object more = Object::steal(PyLong_FromLongLong(*rise));
  const Object before = Object::steal(PyNumber_Subtract(version.get(), more.get()));
  if (!before) return {};
  const Ref ref = trace.read(NodeKind::attribute, tensor, name, 0, before.get());
  if (*rise == 0) return {Py_NewRef(before.get()), ref};
  return binary(&trace, NB_ADD, {before.get(), ref}, {more.get(), 0});
}

// Tensor.shape, .dtype, .T, .grad: getters in C. Most tell what the guard on a tensor implies.
Result get_tensor_field(Trace& trace, Value tensor, PyObject* name) {
  static const std::unordered_set<std::string> changing{"grad",
                                                        "grad_fn",
                                                        "is_leaf",
                                                        "_backward_hooks",
                                                        "retains_grad",
                                                        "output_nr",
                                                        "_post_accumulate_grad_hooks",
                                                        "_grad",
                                                        "_grad_fn",
                                                        "grad_dtype",
                                                        "name",
                                                        "_base"};
  const std::string field = text_of(name);
  // What an op's kind alone decides, not what is in its arguments.
  static const std::unordered_set<std::string> about_kind{"dtype", "device", "layout",
                                                          "requires_grad", "itemsize"};
  const bool is_without_shape =
      about_kind.contains(field) || (field.starts_with("is_") && !changing.contains(field));
  // Those that tell of the shape no more than its rank, and those that are ops.
  static const std::unordered_set<std::string> without_sizes{
      "data", "T", "mT", "H", "mH", "real", "imag", "ndim", "_version"};
  if (trace.sizes.any() && field == "shape")
    if (const std::optional<Result> shape = read_shape(trace, tensor)) return *shape;
  if (trace.sizes.any() && !is_without_shape && !changing.contains(field) &&
      !without_sizes.contains(field))
    trace.pin_sizes_of(tensor.object);
  if (field == "_cdata") {  // an address
    trace.use(tensor);
    return unfollowed_attribute(&trace, tensor, name);
  }
  if (is_without_shape)
    use_in_op(trace, tensor);
  else
    trace.use(tensor);
  const bool is_grad = field == "grad" || field == "_grad";
  const bool is_ours =
      trace.is_born(tensor.object) || (is_grad && trace.has_set_grad(tensor.object));
  if (field == "_version") return read_version(trace, tensor, name);
  if (changing.contains(field) && !is_ours) return read_field(trace, tensor, name);
  PyObject* found = PyObject_GenericGetAttr(tensor.object, name);
  if (found != nullptr && field == "data") trace.log().take_data(tensor.object, found);
  trace.check_log();
  return {found, found == nullptr ? 0 : trace.adopt(found)};
}

Result get_data(Trace& trace, Value attribute, Value object, PyObject* name) {
  if (PySlice_Check(object.object)) trace.use(object);
  PyTypeObject* kind = Py_TYPE(attribute.object);
  PyTypeObject* type = Py_TYPE(object.object);
  if (kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type) {
    if (tensors().is_tensor(object.object) && name != names().dict && name != names().cls)
      return get_tensor_field(trace, object, name);
    if (name == names().cls)
      return {Py_NewRef(as_object(type)),
              trace.is_born(object.object)
                  ? 0
                  : trace.read(NodeKind::type, object, nullptr, 0, as_object(type))};
    if (name == names().dict) {
      Object dict = dict_of(object.object);
      if (trace.is_born(object.object)) {
        if (!dict || tensors().is_tensor(object.object))
          return unfollowed_attribute(&trace, object, name);
        if (const Ref known = trace.ref_of(dict.get())) return {dict.release(), known};
        // What is read there is not asked of the object. Only its numbers are settled: what else it
        // holds does not matter yet.
        trace.settle_inside(std::span(&object, 1));
        const Ref made = trace.make(StepKind::instance_dict, std::span(&object, 1), dict.get());
        return {dict.release(), made};
      }
      const Ref ref = trace.read(NodeKind::instance_dict, object, nullptr, 0, dict.get());
      return {dict.release(), ref};
    }
    if (PyCell_Check(object.object) && PyCell_GET(object.object) != nullptr &&
        PyUnicode_CompareWithASCIIString(name, "cell_contents") == 0) {
      PyObject* contents = PyCell_GET(object.object);
      return {Py_NewRef(contents), trace.read_cell(object, contents)};
    }
    return read_field(trace, object, name);
  }
  return call_getter(trace, attribute, object, type, name);
}

Result get_thread_local(Trace& trace, Value local, PyObject* name) {
  if (!has_in_thread_only(trace, local, name)) return unfollowed_attribute(&trace, local, name);
  Ref ref = 0;
  const Object dict = thread_dict(trace, local, &ref);
  if (!dict) return {};
  if (PyObject* found = PyDict_GetItemWithError(dict.get(), name))
    return {Py_NewRef(found), trace.read_dict({dict.get(), ref}, name, found)};
  trace.read_absent({dict.get(), ref}, name);
  return {PyObject_GetAttr(local.object, name), 0};  // raises
}

// Everything that follows object.__getattribute__.
Result get_generic(Trace& trace, Value object, PyObject* name, PyObject* fallback) {
  PyTypeObject* type = Py_TYPE(object.object);
  PyObject* found = _PyType_Lookup(type, name);
  trace.guard_type(object);
  const Ref ref = trace.read_type(type, name, found);
  Object held = Object::share(found);
  if (found != nullptr && is_data_descriptor(found)) {
    Result result = get_data(trace, {found, ref}, object, name);
    if (result.object != nullptr || fallback == nullptr ||
        !PyErr_ExceptionMatches(PyExc_AttributeError))
      return result;
    PyErr_Clear();
  } else {
    if (Object dict = dict_of(object.object)) {
      const bool born = trace.is_born(object.object);
      PyObject* stored = PyDict_GetItemWithError(dict.get(), name);
      Ref dict_ref = 0;
      if (!born) dict_ref = trace.read(NodeKind::instance_dict, object, nullptr, 0, dict.get());
      if (stored != nullptr) {
        const Ref stored_ref = born ? read_of_made(trace, object, name, stored, 0)
                                    : trace.read_dict({dict.get(), dict_ref}, name, stored);
        return {Py_NewRef(stored), stored_ref};
      }
      // The class has a number for objects that have none of their own yet: self.n += 1 gives this
      // one its own.
      const bool is_default =
          found != nullptr && (PyLong_CheckExact(found) || PyFloat_CheckExact(found));
      if (!born && is_default && !trace.is_changed(dict.get(), name))
        return {held.release(), trace.read(NodeKind::attribute, object, name, 0, found)};
      if (!born) trace.read_absent({dict.get(), dict_ref}, name);
    }
    if (found != nullptr) {
      if (Py_TYPE(found)->tp_descr_get == nullptr) return {held.release(), ref};
      return call_getter(trace, {found, ref}, object, type, name);
    }
  }
  if (fallback != nullptr) {
    const Value arguments[] = {object, {name, 0}};
    const Value getter{fallback, trace.read_type(type, names().getattr, fallback)};
    Result stored;
    if (PyFunction_Check(fallback) && get_module_state(trace, object, name, getter, &stored))
      return stored;
    return call(&trace, getter, arguments, nullptr);
  }
  return {PyObject_GenericGetAttr(object.object, name), 0};  // raises
}

// The class's own __getattribute__ is asked, and its __getattr__ (nullptr: none) behind it.
Result get_by_own_code(Trace& trace, Value object, PyObject* name, PyObject* own,
                       PyObject* fallback) {
  PyTypeObject* type = Py_TYPE(object.object);
  trace.guard_type(object);
  const Value arguments[] = {object, {name, 0}};
  const Ref fallback_ref = trace.read_type(type, names().getattr, fallback);
  const Object held = Object::share(fallback);
  const Result found =
      call(&trace, {own, trace.read_type(type, names().getattribute, own)}, arguments, nullptr);
  if (found.object != nullptr || fallback == nullptr ||
      !PyErr_ExceptionMatches(PyExc_AttributeError))
    return found;
  PyErr_Clear();
  return call(&trace, {fallback, fallback_ref}, arguments, nullptr);
}

// torch.ops.library.op.overload: looked up by the first that asks, and an attribute from then on.
// That is done for it here, so that what is followed is what every later call finds.
void look_up_op(Trace& trace, PyObject* object, PyObject* name) {
  static const std::vector<PyObject*> types = [] {
    std::vector<PyObject*> found;
    const Object module = Object::steal(PyImport_ImportModule("torch._ops"));
    for (const char* type : {"_Ops", "_OpNamespace", "OpOverloadPacket"})
      if (module) found.push_back(PyObject_GetAttrString(module.get(), type));
    PyErr_Clear();
    return found;
  }();
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (std::find(types.begin(), types.end(), type) == types.end()) return;
  const Unfollowed unfollowed(&trace);
  const Object op = Object::steal(PyObject_GetAttr(object, name));
  if (!op) PyErr_Clear();
}

// A module whose class looks in its dict, as types.ModuleType does, and has no code of its own for
// that.
bool is_plain_module(PyObject* object) {
  static PyObject* const generic = _PyType_Lookup(&PyModule_Type, names().getattribute);
  PyTypeObject* type = Py_TYPE(object);
  return PyModule_Check(object) && type->tp_dictoffset == PyModule_Type.tp_dictoffset &&
         (type == &PyModule_Type || _PyType_Lookup(type, names().getattribute) == generic);
}

}  // namespace

bool has_generic_attributes(PyTypeObject* type) {
  PyObject* fallback;
  return is_generic(type, &fallback);
}

PyObject* python_method(PyObject* object, PyObject* name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(object), name);
  return found != nullptr && PyFunction_Check(found) ? found : nullptr;
}

Result call_special(Trace& trace, PyObject* method, PyObject* name,
                    std::span<const Value> arguments) {
  PyTypeObject* type = Py_TYPE(arguments[0].object);
  trace.guard_type(arguments[0]);
  return call(&trace, {method, trace.read_type(type, name, method)}, arguments, nullptr);
}

Result get_attribute(Trace* trace, Value object, PyObject* name) {
  if (!is_following(trace)) return {PyObject_GetAttr(object.object, name), 0};
  object = trace->value(object.object, object.ref);
  PyTypeObject* type = Py_TYPE(object.object);
  look_up_op(*trace, object.object, name);
  if (is_plain_module(object.object)) return get_module_attribute(*trace, object, name);
  if (PyType_Check(object.object)) return get_type_attribute(*trace, object, name);
  if (type == &PySuper_Type) return get_super_attribute(*trace, object, name);
  if (PyMethod_Check(object.object)) {
    if (name == names().func || name == names().self) {
      const bool self = name == names().self;
      PyObject* found =
          self ? PyMethod_GET_SELF(object.object) : PyMethod_GET_FUNCTION(object.object);
      const NodeKind kind = self ? NodeKind::method_self : NodeKind::method_function;
      return {Py_NewRef(found), trace->read(kind, object, nullptr, 0, found)};
    }
    PyObject* function = PyMethod_GET_FUNCTION(object.object);
    return get_attribute(
        trace, {function, trace->read(NodeKind::method_function, object, nullptr, 0, function)},
        name);
  }
  if (is_atom(object.object)) {  // a method, or a field such as int.real
    PyObject* found = PyObject_GetAttr(object.object, name);
    if (found == nullptr || !PyCFunction_Check(found)) trace->use(object);
    if (found == nullptr || is_constant(found)) return {found, 0};
    return remake_by_getattr(*trace, object, name, found);
  }
  if (object.ref == 0 && !is_constant(object.object))
    return unfollowed_attribute(trace, object, name);
  if (is_thread_local(object.object)) return get_thread_local(*trace, object, name);
  PyObject* fallback;
  if (is_generic(type, &fallback)) return get_generic(*trace, object, name, fallback);
  if (PyObject* own = _PyType_Lookup(type, names().getattribute);
      own != nullptr && PyFunction_Check(own)) {
    fallback = _PyType_Lookup(type, names().getattr);
    if (fallback == nullptr || PyFunction_Check(fallback))
      return get_by_own_code(*trace, object, name, own, fallback);
  }
  return unfollowed_attribute(trace, object, name);
}

Result get_generic_attribute(Trace* trace, Value object, PyObject* name) {
  if (!is_following(trace)) return {PyObject_GenericGetAttr(object.object, name), 0};
  return get_generic(*trace, trace->value(object.object, object.ref), name, nullptr);
}

bool get_method(Trace* trace, Value object, PyObject* name, Method* method) {
  *method = {};
  PyTypeObject* type = Py_TYPE(object.object);
  PyObject* fallback;
  PyObject* found = PyType_Check(object.object) || PyModule_Check(object.object) ||
                            type == &PySuper_Type || !is_generic(type, &fallback)
                        ? nullptr
                        : _PyType_Lookup(type, name);
  if (found == nullptr || !PyType_HasFeature(Py_TYPE(found), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
    method->callee = get_attribute(trace, object, name);
    return method->callee.object != nullptr;
  }
  Object held = Object::share(found);
  if (Object dict = dict_of(object.object)) {
    if (PyDict_GetItemWithError(dict.get(), name) != nullptr) {
      method->callee = get_attribute(trace, object, name);
      return method->callee.object != nullptr;
    }
    if (is_following(trace) && !trace->is_born(object.object)) {
      object = trace->value(object.object, object.ref);
      trace->read_absent(
          {dict.get(), trace->read(NodeKind::instance_dict, object, nullptr, 0, dict.get())}, name);
    }
  }
  if (is_following(trace)) {
    object = trace->value(object.object, object.ref);
    trace->guard_type(object);
    method->callee.ref = trace->read_type(type, name, found);
  }
  method->callee.object = held.release();
  method->self = {Py_NewRef(object.object), object.ref};
  return true;
}

}  // namespace smelt::bytecode
