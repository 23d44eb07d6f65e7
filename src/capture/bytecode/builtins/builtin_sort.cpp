// sorted and list.sort: the keys are computed one by one, then C compares them.
#include <string>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {
namespace {

struct Sorting {
  Value key{Py_None, 0};
  Value reverse{Py_False, 0};
};

// False: a keyword that is not known, which raises.
bool read_options(const BuiltinCall& c, std::span<const Value> values, Sorting* sorting) {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string name = text_of(c.keyword(i));
    if (name == "key")
      sorting->key = values[i];
    else if (name == "reverse")
      sorting->reverse = values[i];
    else
      return false;
  }
  return true;
}

// key(item) for each item, all of them used: what C compares is known. Empty without a key or with
// an error.
Object compute_keys(Trace& trace, Value key, std::span<const Result> items) {
  Object keys = Object::steal(PyList_New(0));
  for (const Result& item : items) {
    const Value argument{item.object, item.ref};
    const Result one = key.object == Py_None ? Result{Py_NewRef(item.object), item.ref}
                                             : call(&trace, key, std::span(&argument, 1), nullptr);
    if (one.object == nullptr) return {};
    trace.use({one.object, one.ref});
    PyList_Append(keys.get(), one.object);
    Py_DECREF(one.object);
  }
  return keys;
}

// The positions of the keys in their order: sorted(range(n), key=keys.__getitem__,
// reverse=reverse).
Object sort_positions(Trace& trace, PyObject* keys, PyObject* reverse) {
  Object callee = Object::steal(Py_XNewRef(PyDict_GetItemString(PyEval_GetBuiltins(), "sorted")));
  Object size = Object::steal(PyLong_FromSsize_t(PyList_GET_SIZE(keys)));
  Object range =
      Object::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyRange_Type), size.get()));
  Object arguments = Object::steal(PyTuple_Pack(1, range.get()));
  Object getter = Object::steal(PyObject_GetAttrString(keys, "__getitem__"));
  Object options = Object::steal(PyDict_New());
  PyDict_SetItemString(options.get(), "key", getter.get());
  PyDict_SetItemString(options.get(), "reverse", reverse);
  Object result;
  {
    const Transparent transparent(&trace, true);  // comparisons in Python
    result = Object::steal(PyObject_Call(callee.get(), arguments.get(), options.get()));
  }
  trace.check_log();
  return result;
}

// The items in their new order; false with an error set.
bool sort_items(Trace& trace, const Sorting& sorting, std::span<const Result> items,
                std::vector<Value>& sorted) {
#if PY_VERSION_HEX < 0x030C0000  // from then on any object says whether it is true
  if (!PyIndex_Check(sorting.reverse.object)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object cannot be interpreted as an integer",
                 Py_TYPE(sorting.reverse.object)->tp_name);
    return false;
  }
#endif
  const int is_reversed = truth(&trace, sorting.reverse);
  if (is_reversed < 0) return false;
  const Object keys = compute_keys(trace, sorting.key, items);
  if (!keys) return false;
  const Object order = sort_positions(trace, keys.get(), is_reversed ? Py_True : Py_False);
  if (!order) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(order.get()); ++i) {
    const Result& item =
        items[static_cast<size_t>(PyLong_AsSsize_t(PyList_GET_ITEM(order.get(), i)))];
    sorted.push_back({item.object, item.ref});
  }
  return true;
}

// As list.sort() does it: for as long as keys are computed and compared, the list is empty.
bool sort_emptied(Trace& trace, PyObject* list, const Sorting& sorting,
                  std::span<const Result> items, std::vector<Value>& sorted) {
  const Object contents = Object::steal(PyList_GetSlice(list, 0, PY_SSIZE_T_MAX));
  if (!contents || PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, nullptr) < 0) return false;
  bool ok = sort_items(trace, sorting, items, sorted);
  const bool was_changed = PyList_GET_SIZE(list) > 0;
  if (was_changed) trace.stop(BreakReason::mutation, "a list that is being sorted");
  {
    const SavedError error;
    PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, contents.get());
  }
  if (ok && was_changed) {
    PyErr_SetString(PyExc_ValueError, "list modified during sort");
    ok = false;
  }
  return ok;
}

}  // namespace

bool call_sorted(BuiltinCall& c, Result* result) {
  Sorting sorting;
  if (c.positional() != 1 || !read_options(c, c.arguments.subspan(1), &sorting))
    return c.plainly(result);
  std::vector<Result> items;
  if (unpack(&c.trace, c.argument(0), items, true)) {
    std::vector<Value> sorted;
    if (sort_items(c.trace, sorting, items, sorted)) *result = build_list(&c.trace, sorted);
  }
  release(items);
  return true;
}

bool sort_list(BuiltinCall& c, Value list, std::span<const Value> options, Result* result) {
  Sorting sorting;
  const size_t named =
      c.keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(c.keywords));
  if (options.size() != named || !read_options(c, options, &sorting)) return c.plainly(result);
  c.trace.own(list);
  std::vector<Result> items;
  std::vector<Value> sorted;
  if (unpack(&c.trace, list, items) && sort_emptied(c.trace, list.object, sorting, items, sorted)) {
    // What is done again is that the elements stand in this order.
    const Result in_order = build_list(&c.trace, sorted);
    const Object held = Object::steal(in_order.object);
    const Object all = Object::steal(PySlice_New(nullptr, nullptr, nullptr));
    if (set_item(&c.trace, list, {all.get(), 0}, {in_order.object, in_order.ref}))
      *result = {Py_NewRef(Py_None), 0};
  }
  release(items);
  return true;
}

}  // namespace smelt::bytecode
