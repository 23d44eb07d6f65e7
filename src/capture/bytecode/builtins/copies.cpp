// copy.copy and copy.deepcopy of containers and of plain objects. Python's own code knows by
// address what it has copied already; here each copy is made element by element, so that what it is
// made of is known.
//
// Whether all of it can be copied so is found out before anything is: objects whose classes say how
// they are copied, tensors, and what contains itself are left to Python.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

constexpr int kMaxDepth = 32;

// What decides how an object is copied, other than object.__reduce_ex__.
constexpr const char* kSpecial[] = {
    "__copy__",          "__deepcopy__", "__reduce__",   "__reduce_ex__", "__getnewargs__",
    "__getnewargs_ex__", "__getstate__", "__setstate__", "__getattr__",   "__getattribute__"};

Object interned(const char* name) { return Object::steal(PyUnicode_InternFromString(name)); }

// copyreg.dispatch_table, where others say how objects of a class are copied.
PyObject* dispatch_table() {
  static PyObject* const table = [] {
    const Object module = Object::steal(PyImport_ImportModule("copyreg"));
    return PyObject_GetAttrString(module.get(), "dispatch_table");
  }();
  return table;
}

bool has_slots(PyTypeObject* type) {
  const Object name = interned("__slots__");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (!(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
    PyObject* slots = PyDict_GetItemWithError(own_dict(base).get(), name.get());
    if (slots != nullptr && PyObject_Length(slots) != 0) return true;
  }
  return false;
}

// A __getattribute__ in Python that has, for an object of this class, nothing but object's own to
// say of how it is copied. It is asked for real; when the copy is made it is followed.
bool has_usual_answers(PyObject* object, PyObject* getter) {
  if (getter == nullptr || !PyFunction_Check(getter)) return false;
  for (const char* special : kSpecial) {
    const Object name = interned(special);
    PyObject* usual = _PyType_Lookup(&PyBaseObject_Type, name.get());
    if (std::string_view(special).starts_with("__getattr")) continue;
    const Object found = Object::steal(PyObject_GetAttr(object, name.get()));
    PyErr_Clear();
    if (static_cast<bool>(found) != (usual != nullptr)) return false;
  }
  return true;
}

// An object that is its class and its __dict__.
bool is_plain(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_new != PyBaseObject_Type.tp_new ||
      type->tp_dictoffset == 0 || type->tp_itemsize != 0 || tensors().is_tensor(object) ||
      PyDict_GetItemWithError(dispatch_table(), reinterpret_cast<PyObject*>(type)) != nullptr ||
      has_slots(type))
    return false;
  const Object dict = Object::steal(PyObject_GenericGetDict(object, nullptr));
  PyErr_Clear();
  return dict && std::ranges::all_of(kSpecial, [&](const char* special) {
           const Object name = interned(special);
           PyObject* own = _PyType_Lookup(type, name.get());
           const bool is_usual =
               own == _PyType_Lookup(&PyBaseObject_Type, name.get()) ||
               (std::string_view(special) == "__getattribute__" && has_usual_answers(object, own));
           return is_usual && PyDict_GetItemWithError(dict.get(), name.get()) == nullptr;
         });
}

// Of an Enum that leaves it to enum.Enum what a copy is.
bool is_enum_member(PyObject* object) {
  static PyTypeObject* const base = [] {
    const Object module = Object::steal(PyImport_ImportModule("enum"));
    return reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), "Enum"));
  }();
  const Object name = interned("__deepcopy__");
  PyTypeObject* type = Py_TYPE(object);
  return PyType_IsSubtype(type, base) &&
         _PyType_Lookup(type, name.get()) == _PyType_Lookup(base, name.get());
}

// It is its own copy.
bool is_its_own(PyObject* object) {
  const std::string_view type = Py_TYPE(object)->tp_name;
  return is_atom(object) || PyType_Check(object) || PyFunction_Check(object) ||
         is_enum_member(object) || type == "torch.dtype" || type == "torch.device";
}

bool all_items(PyObject* dict, const std::function<bool(PyObject*, PyObject*)>& test) {
  PyObject *key, *item;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &item))
    if (!test(key, item)) return false;
  return true;
}

bool can_copy(PyObject* object, int depth = 0) {
  if (depth > kMaxDepth) return false;
  const auto inside = [&](PyObject* item) { return can_copy(item, depth + 1); };
  const auto pair = [&](PyObject* key, PyObject* item) { return is_atom(key) && inside(item); };
  if (is_its_own(object)) return true;
  if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      if (!inside(PyList_CheckExact(object) ? PyList_GET_ITEM(object, i)
                                            : PyTuple_GET_ITEM(object, i)))
        return false;
    return true;
  }
  if (PyDict_CheckExact(object)) return all_items(object, pair);
  if (!is_plain(object)) return false;
  const Object dict = Object::steal(PyObject_GenericGetDict(object, nullptr));
  return dict && all_items(dict.get(), pair);
}

class Copier {
 public:
  Copier(Trace& trace, bool deep) : trace_(trace), deep_(deep) {}
  ~Copier() {
    for (auto& [of, made] : made_) Py_XDECREF(made.object);
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // A new reference; nullptr with an error set.
  Result copy(Value value) {
    PyObject* object = value.object;
    if (is_its_own(object)) return {Py_NewRef(object), value.ref};
    if (const auto known = made_.find(object); known != made_.end())
      return {Py_NewRef(known->second.object), known->second.ref};
    value = trace_.value(object, value.ref);
    const Result made = PyDict_CheckExact(object) ? copy_dict(value)
                        : PyList_CheckExact(object) || PyTuple_CheckExact(object)
                            ? copy_sequence(value)
                            : copy_object(value);
    if (made.object != nullptr && made.object != object) {
      trace_.hold(object);
      made_.emplace(object, Result{Py_NewRef(made.object), made.ref});
    }
    return made;
  }

  Result copy_object(Value value) {
    PyTypeObject* type = Py_TYPE(value.object);
    depend_on(value, type);
    const Object make = Object::steal(
        PyObject_GetAttr(reinterpret_cast<PyObject*>(&PyBaseObject_Type), names().new_));
    trace_.hold(make.get());
    const Value cls{reinterpret_cast<PyObject*>(type), 0};
    const Result made = call(&trace_, {make.get(), 0}, std::span(&cls, 1), nullptr);
    if (made.object == nullptr) return {};
    const Result from = get_attribute(&trace_, value, names().dict);
    const Object held_from = Object::steal(from.object);
    const Result into = get_attribute(&trace_, {made.object, made.ref}, names().dict);
    const Object held_into = Object::steal(into.object);
    if (!held_from || !held_into || !fill({into.object, into.ref}, {from.object, from.ref})) {
      Py_DECREF(made.object);
      return {};
    }
    return made;
  }

 private:
  // The class says nothing of copies.
  void depend_on(Value value, PyTypeObject* type) {
    trace_.guard_type(value);
    for (const char* special : kSpecial) {
      const Object name = interned(special);
      trace_.read_type(type, name.get(), _PyType_Lookup(type, name.get()));
    }
    if (PyObject* getter = _PyType_Lookup(type, interned("__getattribute__").get());
        getter != nullptr && PyFunction_Check(getter))
      for (const char* special : kSpecial) {
        if (std::string_view(special).starts_with("__getattr")) continue;
        const Result answer = get_attribute(&trace_, value, interned(special).get());
        Py_XDECREF(answer.object);
        PyErr_Clear();
      }
    trace_.read_absent({dispatch_table(), trace_.object_behind(dispatch_table())},
                       reinterpret_cast<PyObject*>(type));
  }

  Result copy_sequence(Value value) {
    std::vector<Result> items, copies;
    bool ok = unpack(&trace_, value, items);
    bool is_same = PyTuple_CheckExact(value.object);
    for (const Result& item : items) {
      if (!ok) break;
      copies.push_back(copy({item.object, item.ref}));
      is_same = is_same && copies.back().object == item.object;
      ok = copies.back().object != nullptr;
    }
    Result made;
    if (ok && is_same) {
      made = {Py_NewRef(value.object), value.ref};
    } else if (ok) {
      std::vector<Value> values;
      for (const Result& one : copies) values.push_back({one.object, one.ref});
      made = PyTuple_CheckExact(value.object) ? build_tuple(&trace_, values)
                                              : build_list(&trace_, values);
    } else if (!copies.empty()) {
      copies.pop_back();
    }
    release(items);
    release(copies);
    return made;
  }

  Result copy_dict(Value value) {
    const Result made = build_map(&trace_, {});
    if (made.object == nullptr || fill({made.object, made.ref}, value)) return made;
    Py_DECREF(made.object);
    return {};
  }

  bool fill(Value into, Value from) {
    trace_.guard_keys(from);
    return all_items(from.object, [&](PyObject* key, PyObject* item) {
      const Value value{item, trace_.read_dict(from, key, item)};
      const Result made = deep_ ? copy(value) : Result{Py_NewRef(item), value.ref};
      const Object held = Object::steal(made.object);
      return held && set_storage_item(&trace_, into, {key, 0}, {made.object, made.ref});
    });
  }

  Trace& trace_;
  const bool deep_;
  std::unordered_map<PyObject*, Result> made_;  // by what they are copies of
};

}  // namespace

bool call_copy(Trace& trace, Value function, std::span<const Value> arguments, PyObject* keywords,
               Result* result) {
  const bool is_deep = is_function_of(function.object, "copy", "deepcopy");
  if (!is_deep && !is_function_of(function.object, "copy", "copy")) return false;
  if (arguments.size() != 1 || keywords != nullptr) return false;
  PyObject* object = arguments[0].object;
  {
    // How it is copied is asked here, and followed when it is.
    const Unfollowed unfollowed(&trace, false, Trust::everybody);
    // A shallow copy of a container is a method of its own.
    if (is_deep ? !can_copy(object) : !is_plain(object)) return false;
  }
  trace.guard_function(function);
  Copier copier(trace, is_deep);
  *result = is_deep ? copier.copy(arguments[0])
                    : copier.copy_object(trace.value(object, arguments[0].ref));
  return true;
}

}  // namespace smelt::bytecode
