// Methods of builtin types: list.append, dict.get, str.join, object.__setattr__...
#include <opcode.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/private_api.h"
#include "capture/bytecode/values/list_stores.h"

namespace smelt::bytecode {
namespace {

// A method call taken apart: the object it is called on, and the rest.
struct MethodCall {
  BuiltinCall& call;
  Value self;
  std::span<const Value> arguments;
  std::string_view name;
  PyTypeObject* owner = nullptr;  // the builtin type whose method it is

  Trace& trace() const { return call.trace; }
  size_t count() const { return arguments.size(); }
};

using Method = bool (*)(MethodCall&, Result*);
using Table = std::unordered_map<std::string_view, Method>;

// The method as its type has it, to be called again with the object in front: a subclass may have
// another one of that name. Empty: none that can be held on to.
Object unbound(const MethodCall& m) {
  PyObject* callee = m.call.callee.object;
  if (Py_TYPE(callee) == method_wrapper_type()) {
    const Object owner = Object::steal(PyObject_GetAttrString(callee, "__objclass__"));
    return owner ? Object::steal(PyObject_GetAttrString(owner.get(), std::string(m.name).c_str()))
                 : Object();
  }
  if (!PyCFunction_Check(callee)) return Object::share(callee);
  const PyMethodDef* method = reinterpret_cast<PyCFunctionObject*>(callee)->m_ml;
  PyObject* mro = Py_TYPE(m.self.object)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    PyObject* found = PyDict_GetItemString(own_dict(type).get(), method->ml_name);
    if (found != nullptr && Py_TYPE(found) == &PyMethodDescr_Type &&
        reinterpret_cast<PyMethodDescrObject*>(found)->d_method == method)
      return Object::share(found);
  }
  return {};
}

// A list of constants without this one: there is nothing to take out.
bool lacks(const MethodCall& m) {
  if (!PyList_CheckExact(m.self.object) || m.arguments.size() != 1 ||
      !is_constant(m.arguments[0].object))
    return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(m.self.object); ++i)
    if (!is_constant(PyList_GET_ITEM(m.self.object, i))) return false;
  const int found = PySequence_Contains(m.self.object, m.arguments[0].object);
  PyErr_Clear();
  return found == 0;
}

// What self has is compared with the arguments.
void guard_all_owners(MethodCall& m) {
  guard_owners(m.trace(), m.self.object);
  for (const Value& v : m.arguments) guard_owners(m.trace(), v.object);
}

// Changes the container as C does it, after its contents are known; what comes out is one of them.
bool change(MethodCall& m, Result* result) {
  if (PyODict_Check(m.self.object) && has_key_that_shows(m.self.object)) return false;
  for (const Value& v : m.arguments) {
    if (PyIter_Check(v.object) && !m.trace().is_born(v.object)) return false;  // would be moved on
    if (is_constant(v.object))
      m.trace().use(v);
    else if (v.ref == 0 && !m.trace().is_tracked(v.object))
      return false;
    else if (!PyIter_Check(v.object))
      m.call.touch(v);  // its elements may come to be self's
  }
  m.trace().own(m.self);
  guard_all_owners(m);
  if (m.name == "remove" && lacks(m)) {
    result->object =
        call_plainly(m.call.callee.object, m.call.arguments, m.call.keywords);  // raises
    return true;
  }
  const Object method = unbound(m);
  if (!method || !is_fixed(method.get())) {
    PyErr_Clear();
    return false;
  }
  m.trace().hold(method.get());
  std::vector<Value> inputs{{method.get(), 0}, m.self};
  inputs.insert(inputs.end(), m.arguments.begin(), m.arguments.end());
  m.trace().effect_call(inputs, m.call.keywords);
  {
    const Repeated repeated(&m.trace());  // hashes and comparisons
    result->object = call_plainly(m.call.callee.object, m.call.arguments, m.call.keywords);
  }
  if (result->object == nullptr)
    m.trace().stop(BreakReason::raised, std::string(m.name));
  else
    result->ref = m.trace().adopt(result->object);
  return true;
}

// Looks only: everything in self and in the arguments is known, then C does it.
bool look(MethodCall& m, Result* result) {
  if (!m.call.touch(m.self) && !m.trace().is_born(m.self.object)) return false;
  for (const Value& v : m.arguments)
    if (!m.call.touch(v) && !m.trace().is_tracked(v.object)) return false;
  guard_all_owners(m);
  {
    const Transparent transparent(&m.trace(), true);
    result->object = call_plainly(m.call.callee.object, m.call.arguments, m.call.keywords);
  }
  m.trace().check_log();
  if (result->object != nullptr) result->ref = m.trace().adopt(result->object);
  return true;
}

// -- list

bool list_append_method(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  return give_none(result, list_append(&m.trace(), m.self, m.arguments[0]));
}

bool list_extend_method(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  return give_none(result, list_extend(&m.trace(), m.self, m.arguments[0]));
}

// list.__init__ and set.__init__ fill what is empty; what is not they would empty first.
bool list_init(MethodCall& m, Result* result) {
  if (m.count() > 1 || m.call.has_keywords() || PyList_GET_SIZE(m.self.object) != 0) return false;
  m.trace().guard_length(m.self);
  return give_none(result, m.count() == 0 || list_extend(&m.trace(), m.self, m.arguments[0]));
}

bool set_init(MethodCall& m, Result* result) {
  if (m.count() > 1 || m.call.has_keywords() || PySet_GET_SIZE(m.self.object) != 0 ||
      !PySet_Check(m.self.object) || !m.trace().is_born(m.self.object))
    return false;
  return give_none(result, m.count() == 0 || set_update(&m.trace(), m.self, m.arguments[0]));
}

bool list_copy(MethodCall& m, Result* result) {
  if (m.count() != 0) return false;
  std::vector<Result> items;
  if (!unpack(&m.trace(), m.self, items)) return true;
  std::vector<Value> values;
  for (const Result& item : items) values.push_back({item.object, item.ref});
  *result = build_list(&m.trace(), values);
  for (const Result& item : items) Py_DECREF(item.object);
  return true;
}

bool list_pop(MethodCall& m, Result* result) {
  if (m.count() > 1 || m.call.has_keywords()) return change(m, result);
  const Value index = m.count() == 1 ? m.arguments[0] : Value{};
  const std::optional<Result> taken = pop_of_made_list(m.trace(), m.self, index);
  if (!taken) return change(m, result);
  *result = *taken;
  return true;
}

bool list_insert(MethodCall& m, Result* result) {
  if (m.count() != 2) return change(m, result);
  const auto done = insert_in_made_list(m.trace(), m.self, m.arguments[0], m.arguments[1]);
  return done ? give_none(result, *done) : change(m, result);
}

bool list_reverse(MethodCall& m, Result* result) {
  const auto done = m.count() == 0 ? reverse_made_list(m.trace(), m.self) : std::nullopt;
  return done ? give_none(result, *done) : change(m, result);
}

bool list_sort(MethodCall& m, Result* result) {
  return sort_list(m.call, m.self, m.arguments, result);
}

// -- dict

bool dict_get(MethodCall& m, Result* result) {
  if (m.count() < 1 || m.count() > 2 || m.call.has_keywords()) return false;
  const Value key = m.arguments[0];
  use_key(m.trace(), key);
  m.trace().guard_type(m.self);
  PyObject* found = look_up(m.trace(), m.self.object, key.object);
  if (found != nullptr) return give(result, found, m.trace().read_dict(m.self, key.object, found));
  if (PyErr_Occurred()) return true;
  m.trace().read_absent(m.self, key.object);
  if (m.count() == 2) return give(result, m.arguments[1].object, m.arguments[1].ref);
  return give(result, Py_None);
}

// keys(), values(), items(): views, made again by calling the method again.
bool dict_view(MethodCall& m, Result* result) {
  if (m.count() != 0) return false;
  m.trace().guard_type(m.self);
  result->object = call_plainly(m.call.callee.object, m.call.arguments, nullptr);
  if (result->object == nullptr) return true;
  const Object method = unbound(m);
  if (!method || !is_fixed(method.get())) {
    PyErr_Clear();
    m.trace().stop(BreakReason::c_function, std::string(m.name));
    return true;
  }
  const Value inputs[] = {{method.get(), 0}, m.self};
  m.trace().hold(method.get());
  result->ref = m.trace().make(StepKind::call, inputs, result->object);
  return true;
}

bool dict_update_method(MethodCall& m, Result* result) {
  const size_t positional = m.count() - (m.call.count() - m.call.positional());
  if (positional > 1) return false;
  bool ok = true;
  if (positional == 1) {
    ok = m.call.update_from_mapping(m.self, m.arguments[0]);
  }
  for (size_t i = positional; ok && i < m.count(); ++i)
    ok = set_storage_item(&m.trace(), m.self, {m.call.keyword(i - positional), 0}, m.arguments[i]);
  return give_none(result, ok);
}

// What dict.__init__ does too. A defaultdict's takes its factory first.
bool dict_init(MethodCall& m, Result* result) {
  if (m.owner != &PyDict_Type && m.owner != &PyODict_Type) return false;
  return dict_update_method(m, result);
}

// C takes it out of the storage: no __delitem__ of the class's own is asked, nor an OrderedDict's.
bool has_own_delete(const MethodCall& m) {
  return python_method(m.self.object, names().delitem) != nullptr ||
         (PyODict_Check(m.self.object) && m.owner == &PyDict_Type);
}

bool dict_delitem(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  if (has_own_delete(m)) return change(m, result);
  return give_none(result, delete_item(&m.trace(), m.self, m.arguments[0]));
}

bool dict_pop(MethodCall& m, Result* result) {
  if (m.count() < 1 || m.count() > 2) return false;
  if (has_own_delete(m) || is_hashed_by_code(m.arguments[0].object)) return change(m, result);
  Result found;
  if (!dict_get(m, &found)) return false;
  if (PyErr_Occurred()) return true;
  if (look_up(m.trace(), m.self.object, m.arguments[0].object) == nullptr) {
    if (m.count() == 2) {
      *result = found;
    } else {
      Py_XDECREF(found.object);
      _PyErr_SetKeyError(m.arguments[0].object);
    }
    return true;
  }
  if (delete_item(&m.trace(), m.self, m.arguments[0]))
    *result = found;
  else
    Py_XDECREF(found.object);
  return true;
}

bool dict_setdefault(MethodCall& m, Result* result) {
  if (m.count() < 1 || m.count() > 2) return false;
  if (is_hashed_by_code(m.arguments[0].object)) return change(m, result);
  const bool has = look_up(m.trace(), m.self.object, m.arguments[0].object) != nullptr;
  if (PyErr_Occurred()) return true;
  if (has) {
    MethodCall get{m.call, m.self, m.arguments.subspan(0, 1), "get"};
    return dict_get(get, result);
  }
  m.trace().read_absent(m.self, m.arguments[0].object);
  const Value fallback = m.count() == 2 ? m.arguments[1] : Value{Py_None, 0};
  if (set_storage_item(&m.trace(), m.self, m.arguments[0], fallback))
    give(result, fallback.object, fallback.ref);
  return true;
}

// Of an OrderedDict: another one. A subclass is asked for itself first.
bool dict_copy(MethodCall& m, Result* result) {
  const bool is_ordered = PyODict_CheckExact(m.self.object) && m.owner == &PyODict_Type;
  if (!(PyDict_CheckExact(m.self.object) || is_ordered) || m.count() != 0) return false;
  const Value type{reinterpret_cast<PyObject*>(&PyODict_Type), 0};
  *result = is_ordered ? call(&m.trace(), type, {}, nullptr) : build_map(&m.trace(), {});
  if (result->object == nullptr) return true;
  if (!dict_update(&m.trace(), {result->object, result->ref}, m.self)) Py_CLEAR(result->object);
  return true;
}

bool get_item_method(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  const Value key = m.arguments[0];
  if (!PyDict_Check(m.self.object) && !PyLong_Check(key.object) && !PySlice_Check(key.object))
    return false;
  *result = get_storage_item(m.trace(), m.self, key);
  return true;
}

// A dict subclass calls dict.__getitem__ on itself: the storage, not its own __getitem__.
bool dict_getitem(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  if (PyDict_CheckExact(m.self.object)) return get_item_method(m, result);
  if (is_hashed_by_code(m.arguments[0].object)) return false;
  if (look_up(m.trace(), m.self.object, m.arguments[0].object) == nullptr) return false;
  return dict_get(m, result);
}

bool dict_setitem(MethodCall& m, Result* result) {
  if (m.count() != 2 || !is_constant(m.arguments[0].object)) return false;
  const Value inputs[] = {m.self, m.arguments[0], m.arguments[1]};
  if (!PyDict_CheckExact(m.self.object)) return change(m, result);
  m.trace().use(m.arguments[0]);
  m.trace().effect(StepKind::set_item, inputs);
  return give_none(
      result, PyDict_SetItem(m.self.object, m.arguments[0].object, m.arguments[1].object) == 0);
}

bool contains_method(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  if (PyDict_CheckExact(m.self.object))
    *result = contains(&m.trace(), m.self, m.arguments[0], false);
  else
    *result = storage_contains(m.trace(), m.owner, m.self, m.arguments[0]);
  return true;
}

bool len_method(MethodCall& m, Result* result) {
  m.trace().guard_length(m.self);
  return m.call.plainly(result);
}

bool iter_method(MethodCall& m, Result* result) {
  *result = get_storage_iter(m.trace(), m.owner, m.self);
  return true;
}

// -- set

bool set_add_method(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  return give_none(result, set_add(&m.trace(), m.self, m.arguments[0]));
}

// -- object

bool object_setattr(MethodCall& m, Result* result) {
  if (m.count() != 2 || !PyUnicode_Check(m.arguments[0].object) || PyType_Check(m.self.object))
    return false;
  m.trace().use(m.arguments[0]);
  return give_none(
      result, set_generic_attribute(&m.trace(), m.self, m.arguments[0].object, m.arguments[1]));
}

bool object_delattr(MethodCall& m, Result* result) {
  if (m.count() != 1 || !PyUnicode_Check(m.arguments[0].object) || PyType_Check(m.self.object))
    return false;
  m.trace().use(m.arguments[0]);
  return give_none(result, set_generic_attribute(&m.trace(), m.self, m.arguments[0].object, {}));
}

bool object_getattribute(MethodCall& m, Result* result) {
  if (m.count() != 1 || !PyUnicode_Check(m.arguments[0].object)) return false;
  m.trace().use(m.arguments[0]);
  *result = get_generic_attribute(&m.trace(), m.self, m.arguments[0].object);
  return true;
}

bool object_init(MethodCall& m, Result* result) {
  if (m.call.count() != m.count() + (PyCFunction_Check(m.call.callee.object) ? 0 : 1) &&
      m.count() != 0)
    return false;
  return m.count() == 0 ? give_none(result, true) : false;
}

bool object_compare(MethodCall& m, Result* result) {
  if (m.count() != 1) return false;
  const bool same = m.self.object == m.arguments[0].object;
  m.trace().guard_alias(m.self, m.arguments[0], same);
  if (m.name == "__ne__") return false;
  return give(result, same ? Py_True : Py_NotImplemented);
}

const Table& list_methods() {
  static const Table table{{"append", list_append_method},
                           {"extend", list_extend_method},
                           {"copy", list_copy},
                           {"pop", list_pop},
                           {"insert", list_insert},
                           {"remove", change},
                           {"clear", change},
                           {"reverse", list_reverse},
                           {"sort", list_sort},
                           {"index", look},
                           {"count", look},
                           {"__init__", list_init},
                           {"__getitem__", get_item_method},
                           {"__contains__", contains_method},
                           {"__len__", len_method},
                           {"__iter__", iter_method}};
  return table;
}

const Table& dict_methods() {
  static const Table table{{"get", dict_get},
                           {"keys", dict_view},
                           {"values", dict_view},
                           {"items", dict_view},
                           {"update", dict_update_method},
                           {"pop", dict_pop},
                           {"setdefault", dict_setdefault},
                           {"copy", dict_copy},
                           {"popitem", change},
                           {"clear", change},
                           {"move_to_end", change},
                           {"__init__", dict_init},
                           {"__getitem__", dict_getitem},
                           {"__setitem__", dict_setitem},
                           {"__delitem__", dict_delitem},
                           {"__contains__", contains_method},
                           {"__len__", len_method},
                           {"__iter__", iter_method}};
  return table;
}

const Table& set_methods() {
  static const Table table{{"add", set_add_method},
                           {"discard", change},
                           {"remove", change},
                           {"clear", change},
                           {"update", change},
                           {"pop", change},
                           {"copy", look},
                           {"union", look},
                           {"intersection", look},
                           {"difference", look},
                           {"symmetric_difference", look},
                           {"issubset", look},
                           {"issuperset", look},
                           {"isdisjoint", look},
                           {"__init__", set_init},
                           {"__contains__", contains_method},
                           {"__len__", look},
                           {"__iter__", iter_method}};
  return table;
}

const Table& deque_methods() {
  static const Table table{{"append", change},  {"appendleft", change}, {"pop", change},
                           {"popleft", change}, {"extend", change},     {"extendleft", change},
                           {"rotate", change},  {"clear", change},      {"remove", change},
                           {"insert", change},  {"reverse", change},    {"count", look},
                           {"index", look},     {"__len__", look}};
  return table;
}

const Table& tuple_methods() {
  static const Table table{{"index", look},
                           {"count", look},
                           {"__getitem__", get_item_method},
                           {"__contains__", contains_method},
                           {"__len__", len_method},
                           {"__iter__", iter_method}};
  return table;
}

const Table& object_methods() {
  static const Table table{{"__setattr__", object_setattr},
                           {"__delattr__", object_delattr},
                           {"__getattribute__", object_getattribute},
                           {"__init__", object_init},
                           {"__eq__", object_compare},
                           {"__ne__", object_compare}};
  return table;
}

bool takes_keywords(std::string_view name) {
  return name == "update" || name == "sort" || name == "__init__" || name == "popitem" ||
         name == "move_to_end";
}

// Is what the type has by this name object's own, and not one of the type's?
bool is_objects_own(PyTypeObject* owner, std::string_view name) {
  const PyTypeObject& object = PyBaseObject_Type;
  if (name == "__init__") return owner->tp_init == object.tp_init;
  if (name == "__getattribute__") return owner->tp_getattro == object.tp_getattro;
  if (name == "__setattr__" || name == "__delattr__")
    return owner->tp_setattro == object.tp_setattro;
  return owner->tp_richcompare == object.tp_richcompare;
}

const Table* table_for(PyTypeObject* type) {
  if (type == &PyList_Type) return &list_methods();
  if (type == &PyDict_Type || type == known_type(KnownType::ordered_dict) ||
      type == known_type(KnownType::defaultdict))
    return &dict_methods();
  if (type == &PySet_Type || type == &PyFrozenSet_Type) return &set_methods();
  if (type == &PyTuple_Type) return &tuple_methods();
  if (type == known_type(KnownType::deque)) return &deque_methods();
  if (type == &PyBaseObject_Type) return &object_methods();
  return nullptr;
}

// object.__new__(cls), tuple.__new__(cls, items): made again by the same call.
bool call_new(BuiltinCall& c, PyTypeObject* owner, Result* result) {
  if (c.count() == 0 || c.has_keywords() || !PyType_Check(c.argument(0).object)) return false;
  const bool plain = owner == &PyBaseObject_Type || owner == &PyDict_Type || owner == &PyList_Type;
  if (!plain && owner != &PyTuple_Type) return false;
  c.trace.use(c.argument(0));
  auto* made = reinterpret_cast<PyTypeObject*>(c.argument(0).object);
  for (PyObject* name : {names().new_, names().init})  // which decide about more arguments
    c.trace.read_type(made, name, _PyType_Lookup(made, name));
  std::vector<Value> inputs{{c.callee.object, 0}, {c.argument(0).object, 0}};
  if (owner == &PyTuple_Type && c.count() == 2) {
    std::vector<Result> items;
    if (!unpack(&c.trace, c.argument(1), items)) return true;
    std::vector<Value> values;
    for (const Result& item : items) values.push_back({item.object, item.ref});
    const Result tuple = build_tuple(&c.trace, values);
    for (const Result& item : items) Py_DECREF(item.object);
    Object held = Object::steal(tuple.object);
    inputs.push_back({tuple.object, tuple.ref});
    const Value arguments[] = {c.argument(0), {tuple.object, tuple.ref}};
    result->object = call_plainly(c.callee.object, arguments, nullptr);
  } else {
    // What comes behind the class is for __init__.
    result->object =
        call_plainly(c.callee.object, plain ? c.arguments : c.arguments.subspan(0, 1), nullptr);
    if (c.count() > 1 && owner == &PyBaseObject_Type) {
      if (result->object == nullptr) return true;
      Py_CLEAR(result->object);
      result->object = call_plainly(c.callee.object, c.arguments.subspan(0, 1), nullptr);
    }
  }
  if (result->object != nullptr) result->ref = c.trace.make(StepKind::call, inputs, result->object);
  return true;
}

// dict.fromkeys(keys, value)
bool dict_fromkeys(BuiltinCall& c, PyObject* type, Result* result) {
  const std::string_view name = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  const bool known = type == reinterpret_cast<PyObject*>(&PyDict_Type) ||
                     name == "collections.OrderedDict" || name == "collections.defaultdict";
  if (!known || c.positional() == 0 || c.count() > 2) return false;
  if (c.has_keywords() && text_of(c.keyword(0)) != "value") return false;
  const Value value = c.count() == 2 ? c.argument(1) : Value{Py_None, 0};
  const Result dict = call(&c.trace, {type, 0}, {}, nullptr);
  if (dict.object == nullptr) return true;
  Object held = Object::steal(dict.object);
  std::vector<Result> keys;
  bool ok = unpack(&c.trace, c.argument(0), keys);
  for (const Result& key : keys) {
    ok = ok && set_item(&c.trace, {dict.object, dict.ref}, {key.object, key.ref}, value);
    Py_DECREF(key.object);
  }
  if (ok) *result = {held.release(), dict.ref};
  return true;
}

// itertools.chain.from_iterable of a list or tuple of what is known.
bool chain_over_known(BuiltinCall& c, PyObject* type, Result* result) {
  if (reinterpret_cast<PyTypeObject*>(type) != known_type(KnownType::chain) || c.count() != 1 ||
      c.has_keywords())
    return false;
  const Value outer = c.trace.value(c.argument(0).object, c.argument(0).ref);
  if (!PyList_CheckExact(outer.object) && !PyTuple_CheckExact(outer.object)) return false;
  std::vector<Result> items;
  bool ok = unpack(&c.trace, outer, items);
  for (const Result& item : items) {
    ok = ok && !PyIter_Check(item.object) && c.touch({item.object, item.ref});
    Py_DECREF(item.object);
  }
  if (!ok) return false;
  result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  if (result->object == nullptr) return true;
  c.trace.transient(result->object);
  result->ref = c.trace.ref_of(result->object);
  return true;
}

// list.__eq__(x, other) where one is of a subclass, which may have an __eq__ of its own.
bool compare_storage(MethodCall& m, Result* result) {
  m.trace().use(m.self);
  m.trace().use(m.arguments[0]);
  {
    const Transparent transparent(&m.trace(), true);
    result->object = call_plainly(m.call.callee.object, m.call.arguments, nullptr);
  }
  m.trace().check_log();
  if (result->object != nullptr) result->ref = m.trace().adopt(result->object);
  return true;
}

// list.__add__, dict.__or__, set.__le__ called by name: on objects of just that type the operator
// itself, but for what it says when it does not apply.
bool call_operator_method(MethodCall& m, PyTypeObject* owner, Result* result) {
  if (m.count() != 1 || m.call.has_keywords()) return false;
  if (owner != &PyList_Type && owner != &PyDict_Type && owner != &PySet_Type &&
      owner != &PyTuple_Type)
    return false;
  const bool both_plain =
      Py_TYPE(m.self.object) == owner && Py_TYPE(m.arguments[0].object) == owner;
  static const std::unordered_map<std::string_view, int> binaries{{"__add__", NB_ADD},
                                                                  {"__or__", NB_OR},
                                                                  {"__and__", NB_AND},
                                                                  {"__sub__", NB_SUBTRACT},
                                                                  {"__xor__", NB_XOR},
                                                                  {"__iadd__", NB_INPLACE_ADD},
                                                                  {"__ior__", NB_INPLACE_OR},
                                                                  {"__iand__", NB_INPLACE_AND},
                                                                  {"__isub__", NB_INPLACE_SUBTRACT},
                                                                  {"__ixor__", NB_INPLACE_XOR}};
  static const std::unordered_map<std::string_view, int> compares{
      {"__lt__", Py_LT}, {"__le__", Py_LE}, {"__eq__", Py_EQ},
      {"__ne__", Py_NE}, {"__gt__", Py_GT}, {"__ge__", Py_GE}};
  if (const auto op = binaries.find(m.name); both_plain && op != binaries.end()) {
    if (_PyType_Lookup(owner,
                       Object::steal(PyUnicode_FromStringAndSize(
                                         m.name.data(), static_cast<Py_ssize_t>(m.name.size())))
                           .get()) == nullptr)
      return false;
    *result = binary(&m.trace(), op->second, m.self, m.arguments[0]);
    return true;
  }
  if (const auto op = compares.find(m.name);
      op != compares.end() &&
      (owner != &PyDict_Type || op->second == Py_EQ || op->second == Py_NE)) {
    if (!both_plain) return compare_storage(m, result);
    *result = compare(&m.trace(), op->second, m.self, m.arguments[0]);
    return true;
  }
  return false;
}

bool is_constant_type(PyTypeObject* type) {
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyBool_Type || type == &PyBytes_Type || type == &PyComplex_Type ||
         type == &PyRange_Type || type == &PySlice_Type || type == known_type(KnownType::size) ||
         type == known_type(KnownType::pattern);
}

// text.join(x) goes over what x gives before it looks at it.
bool join_elements(MethodCall& m, Result* result) {
  std::vector<Result> items;
  if (!unpack(&m.trace(), m.arguments[0], items)) {
    release(items);
    return true;
  }
  std::vector<Value> values;
  for (const Result& item : items) values.push_back({item.object, item.ref});
  const Result list = build_list(&m.trace(), values);
  const Object held = Object::steal(list.object);
  release(items);
  if (!held) return true;
  std::vector<Value> arguments(m.call.arguments.begin(), m.call.arguments.end());
  arguments.back() = {list.object, list.ref};
  BuiltinCall call{m.trace(), m.call.callee, arguments, nullptr};
  if (!call.on_constants(result)) {  // raises, or has classes of strings in it
    m.trace().stop(BreakReason::c_function, "str.join");
    result->object = call_plainly(m.call.callee.object, arguments, nullptr);
  }
  return true;
}

// A method of str, of an object whose class has more (torch.__version__): it stands for its text as
// long as it is there.
bool call_on_text(MethodCall& m, Result* result) {
  const Object method = unbound(m);
  if (!method || Py_TYPE(method.get()) != &PyMethodDescr_Type ||
      PyDescr_TYPE(method.get()) != &PyUnicode_Type) {
    PyErr_Clear();
    return false;
  }
  const Object text = Object::steal(PyUnicode_FromObject(m.self.object));
  if (!text || !PyUnicode_CheckExact(text.get())) return false;
  m.trace().guard_same(m.self);
  m.trace().hold(text.get());
  std::vector<Value> arguments{{text.get(), 0}};
  arguments.insert(arguments.end(), m.arguments.begin(), m.arguments.end());
  BuiltinCall call{m.trace(), {method.get(), 0}, arguments, m.call.keywords};
  return call.on_constants(result);
}

// A method that does what a dict's does.
bool call_through_proxy(MethodCall& m, Result* result) {
  static const std::unordered_set<std::string_view> names{"get",          "keys",    "values",
                                                          "items",        "copy",    "__getitem__",
                                                          "__contains__", "__len__", "__iter__"};
  if (!names.contains(m.name)) return false;
  const Value dict = behind_proxy(m.trace(), m.self);
  if (dict.object == m.self.object) return false;
  const Object name = Object::steal(PyUnicode_FromString(std::string(m.name).c_str()));
  PyObject* method = _PyType_Lookup(Py_TYPE(dict.object), name.get());
  std::vector<Value> arguments{dict};
  arguments.insert(arguments.end(), m.arguments.begin(), m.arguments.end());
  BuiltinCall call{m.trace(), {method, 0}, arguments, m.call.keywords};
  return call_builtin_method(call, result);
}

}  // namespace

bool call_builtin_method(BuiltinCall& c, Result* result) {
  PyObject* callee = c.callee.object;
  MethodCall m{c, {}, c.arguments, {}};
  PyTypeObject* owner = nullptr;
  Object held, held_name;  // what a wrapper hands out is new each time
  if (PyCFunction_Check(callee)) {
    PyObject* self = PyCFunction_GET_SELF(callee);
    m.name = reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name;
    if (PyType_Check(self) && m.name == "__new__")
      return call_new(c, reinterpret_cast<PyTypeObject*>(self), result);
    if (PyType_Check(self) && m.name == "fromkeys") return dict_fromkeys(c, self, result);
    if (PyType_Check(self) && is_constant_type(reinterpret_cast<PyTypeObject*>(self)))
      return c.on_constants(result);  // int.from_bytes
    if (PyType_Check(self) && m.name == "from_iterable") return chain_over_known(c, self, result);
    m.self = c.trace.value(self);
    if (m.self.ref == 0 && !is_constant(self))
      m.self.ref = c.trace.read(NodeKind::method_self, c.callee, nullptr, 0, self);
    owner = Py_TYPE(self);
  } else if (Py_TYPE(callee) == method_wrapper_type()) {
    held = Object::steal(PyObject_GetAttr(callee, names().self));
    m.self = c.trace.value(held.get());
    // No path leads to the object of a wrapper that existed before.
    if (m.self.ref == 0 && !c.trace.is_tracked(held.get()) && !is_constant(held.get()))
      return false;
    held_name = Object::steal(PyObject_GetAttrString(callee, "__name__"));
    m.name = PyUnicode_AsUTF8(held_name.get());
    Object cls = Object::steal(PyObject_GetAttrString(callee, "__objclass__"));
    owner = cls ? reinterpret_cast<PyTypeObject*>(cls.get()) : Py_TYPE(held.get());
    PyErr_Clear();
  } else {
    if (c.positional() == 0) return c.plainly(result);  // raises
    m.self = c.trace.value(c.arguments[0].object, c.arguments[0].ref);
    m.arguments = c.arguments.subspan(1);
    m.name = PyUnicode_AsUTF8(PyDescr_NAME(callee));
    owner = PyDescr_TYPE(callee);
  }
  if (!c.trace.active()) return false;
  if (owner == &PyDictProxy_Type) return call_through_proxy(m, result);
  if (PyUnicode_Check(m.self.object) && !PyUnicode_CheckExact(m.self.object) && m.self.ref != 0 &&
      !c.trace.is_born(m.self.object) && !is_constant(m.self.object))
    return call_on_text(m, result);
  if (is_constant_type(owner) || is_atom(m.self.object) ||
      is_numpy_number(Py_TYPE(m.self.object))) {
    c.trace.use(m.self);
    if (owner == &PyUnicode_Type && m.name == "join" && m.count() == 1 &&
        !is_constant(m.arguments[0].object) && !PyList_CheckExact(m.arguments[0].object))
      return join_elements(m, result);
    if (makes_match(owner, m.name)) return make_match(c, m.self, m.arguments, m.name, result);
    if (owner == known_type(KnownType::pattern) && m.name == "finditer")
      return make_matches(c, m.arguments, result);
    return c.on_constants(result);
  }
  if (call_method_of_object(c, m.self, m.arguments, m.name, owner, result)) return true;
  if (call_operator_method(m, owner, result)) return true;
  for (PyTypeObject* type = owner; type != nullptr; type = type->tp_base) {
    const Table* table = table_for(type);
    if (table == nullptr) continue;
    const auto found = table->find(m.name);
    m.owner = type;
    if (found == table->end()) continue;
    if (type == &PyBaseObject_Type && !is_objects_own(owner, m.name)) return false;
    if (c.has_keywords() && !takes_keywords(m.name)) return false;  // raises
    return found->second(m, result);
  }
  return false;
}

}  // namespace smelt::bytecode
