#include "capture/bytecode/nodes/lazy_elements.h"

#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/cpython/known_types.h"

namespace smelt::bytecode {

bool fits_scalar(PyObject* number) {
  if (PyFloat_CheckExact(number)) return true;
  int overflow = 0;
  if (!PyLong_CheckExact(number)) return false;
  PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0;
}

bool keeps_elements(StepKind kind) {
  switch (kind) {
    case StepKind::build_tuple:
    case StepKind::build_list:
    case StepKind::build_map:
    case StepKind::build_size:
    case StepKind::build_slice:
    case StepKind::set_attr:
    case StepKind::set_item:
    case StepKind::list_append:
    case StepKind::new_cell:
    case StepKind::set_cell: return true;
    default: return false;
  }
}

bool may_have_lazy_fields(PyObject* object) {
  return is_plain_instance(object) ||
         PyType_IsSubtype(Py_TYPE(object), known_type(KnownType::function_base));
}

Ref LazyElements::item(Py_ssize_t index) const {
  for (const Element& element : elements_)
    if (!element.key && element.index == index) return element.ref;
  return 0;
}

Ref LazyElements::value(PyObject* key) const {
  for (const Element& element : elements_)
    if (element.key && PyUnicode_Compare(element.key.get(), key) == 0) return element.ref;
  return 0;
}

void LazyElements::set_value(PyObject* key, Ref ref) {
  std::erase_if(elements_, [&](const Element& element) {
    return element.key && PyUnicode_Compare(element.key.get(), key) == 0;
  });
  if (ref != 0) elements_.push_back({Object::share(key), 0, ref});
}

void LazyElements::set_item(Py_ssize_t index, Ref ref) {
  std::erase_if(elements_,
                [&](const Element& element) { return !element.key && element.index == index; });
  if (ref != 0) elements_.push_back({{}, index, ref});
}

void LazyElements::remove_item(Py_ssize_t index) {
  set_item(index, 0);
  for (Element& element : elements_)
    if (!element.key && element.index > index) --element.index;
}

std::vector<Ref> LazyElements::take() {
  std::vector<Ref> refs;
  for (const Element& element : elements_) refs.push_back(element.ref);
  elements_.clear();
  return refs;
}

}  // namespace smelt::bytecode
