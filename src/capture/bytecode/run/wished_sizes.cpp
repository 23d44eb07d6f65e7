#include "capture/bytecode/run/wished_sizes.h"

#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {
namespace {

// smelt.mark_static, and torch._dynamo.mark_dynamic and its like, put a set of dimensions onto the
// tensor.
std::set<int> marked(PyObject* tensor, std::initializer_list<const char*> names) {
  std::set<int> dims;
  for (const char* name : names) {
    const Object marks = Object::steal(PyObject_GetAttrString(tensor, name));
    if (!marks || !PyAnySet_Check(marks.get())) {
      PyErr_Clear();
      continue;
    }
    const Object list = Object::steal(PySequence_List(marks.get()));
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i)
      dims.insert(static_cast<int>(PyLong_AsLong(PyList_GET_ITEM(list.get(), i))));
    PyErr_Clear();
  }
  return dims;
}

// smelt.mark_dynamic puts a dict there: the least and the largest size, or None, and a name, or
// None, by dimension.
Object marks_of(PyObject* tensor) {
  Object marks = Object::steal(PyObject_GetAttrString(tensor, "_smelt_dynamic_dims"));
  PyErr_Clear();
  return marks && PyDict_Check(marks.get()) ? marks : Object();
}

// Those dimensions whose size is in that range.
std::set<int> marked_ranges(PyObject* tensor) {
  std::set<int> dims;
  const Object marks = marks_of(tensor);
  if (!marks) return dims;
  PyObject *key, *range;
  for (Py_ssize_t at = 0; PyDict_Next(marks.get(), &at, &key, &range);) {
    const auto dim = static_cast<int>(PyLong_AsLong(key));
    if (!PyTuple_Check(range) || PyTuple_GET_SIZE(range) != 3 || dim < 0 ||
        dim >= tensors().rank_of(tensor))
      continue;
    const int64_t size = tensors().size_of(tensor, dim);
    PyObject* most = PyTuple_GET_ITEM(range, 1);
    if (size >= PyLong_AsLongLong(PyTuple_GET_ITEM(range, 0)) &&
        (most == Py_None || size <= PyLong_AsLongLong(most)))
      dims.insert(dim);
  }
  PyErr_Clear();
  return dims;
}

// Most tensors have no attributes of their own.
bool has_marks(PyObject* tensor) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  return dict != nullptr && *dict != nullptr && PyDict_GET_SIZE(*dict) > 0;
}

}  // namespace

std::optional<std::string> WishedSizes::mark(PyObject* tensor, int dim) const {
  if (!has_marks(tensor)) return std::nullopt;
  const Object marks = marks_of(tensor), key = Object::steal(PyLong_FromLong(dim));
  PyObject* mark = marks && key ? PyDict_GetItemWithError(marks.get(), key.get()) : nullptr;
  PyErr_Clear();
  if (mark == nullptr || !PyTuple_Check(mark) || PyTuple_GET_SIZE(mark) != 3) return std::nullopt;
  PyObject* name = PyTuple_GET_ITEM(mark, 2);
  return PyUnicode_Check(name) ? text_of(name) : std::string();
}

// Sizes 0 and 1 compute differently: they are programs of their own.
std::vector<int> WishedSizes::of(PyObject* tensor, const std::string& path, bool is_state) const {
  const int rank = tensors().rank_of(tensor);
  std::set<int> wished, fixed;
  if (const auto changed = changed_.find(path); changed != changed_.end()) wished = changed->second;
  if (use_ == SizeUse::varying && !is_state)
    for (int dim = 0; dim < rank; ++dim) wished.insert(dim);
  if (has_marks(tensor)) {
    wished.merge(marked_ranges(tensor));
    wished.merge(marked(tensor, {"_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices",
                                 "_dynamo_unbacked_indices"}));
    fixed = marked(tensor, {"_smelt_static_dims", "_dynamo_static_indices"});
  }
  std::vector<int> dims;
  for (const int dim : wished)
    if (dim >= 0 && dim < rank && !fixed.contains(dim) && tensors().size_of(tensor, dim) >= 2)
      dims.push_back(dim);
  return dims;
}

}  // namespace smelt::bytecode
