// Builtin functions of tuples and lists with numbers that may be others in the next call, as shapes
// have them: math.prod, torch.Size, enumerate, reversed, and divmod. What they give has such numbers
// too.
#include <opcode.h>

#include <algorithm>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

// The elements, while it lives.
class Elements {
 public:
  Elements(Trace& trace, Value sequence) {
    if (!unpack(&trace, sequence, held_)) return;
    for (const Result& one : held_) values_.push_back({one.object, one.ref});
  }
  ~Elements() {
    for (const Result& one : held_) Py_DECREF(one.object);
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  std::vector<Value>& values() { return values_; }

 private:
  std::vector<Result> held_;
  std::vector<Value> values_;
};

Result product_of(Trace& trace, std::span<const Value> factors) {
  Result product{PyLong_FromLong(1), 0};
  for (const Value& factor : factors) {
    const Object before = Object::steal(product.object);
    product = binary(&trace, NB_MULTIPLY, {before.get(), product.ref}, factor);
    if (product.object == nullptr) return {};
  }
  return product;
}

// A tuple or list with such a number, or with pairs of which one is such.
bool is_of_numbers(const BuiltinCall& c, size_t i) {
  if (c.positional() <= i) return false;
  const Value list = c.argument(i);
  if (has_lazy_elements(c.trace, list)) return true;
  if (!PyList_CheckExact(list.object) && !PyTuple_CheckExact(list.object)) return false;
  const auto items = PySequence_Fast_ITEMS(list.object);
  return std::any_of(items, items + Py_SIZE(list.object), [&](PyObject* item) {
    return PyTuple_CheckExact(item) && has_lazy_elements(c.trace, c.trace.value(item));
  });
}

}  // namespace

bool call_prod(BuiltinCall& c, Result* result) {
  if (c.count() != 1 || !is_of_numbers(c, 0)) return false;
  Elements elements(c.trace, c.argument(0));
  *result = product_of(c.trace, elements.values());
  return true;
}

bool call_divmod(BuiltinCall& c, Result* result) {
  if (c.count() != 2 || c.has_keywords() || !are_lazy_numbers(c.arguments)) return false;
  const Result quotient = binary(&c.trace, NB_FLOOR_DIVIDE, c.argument(0), c.argument(1));
  const Object held = Object::steal(quotient.object);
  if (!held) return true;
  const Result rest = binary(&c.trace, NB_REMAINDER, c.argument(0), c.argument(1));
  const Object held_rest = Object::steal(rest.object);
  if (!held_rest) return true;
  const Value both[] = {{held.get(), quotient.ref}, {held_rest.get(), rest.ref}};
  *result = build_tuple(&c.trace, both);
  return true;
}

bool make_size(BuiltinCall& c, Result* result) {
  if (c.count() != 1 || !is_of_numbers(c, 0)) return false;
  Elements elements(c.trace, c.argument(0));
  PyObject* made = call_plainly(c.callee.object, c.arguments, nullptr);
  if (made != nullptr) *result = made_of(c.trace, elements.values(), made);
  return true;
}

bool make_iterator_over_numbers(BuiltinCall& c, Result* result) {
  const bool numbers_them = c.callee.object == reinterpret_cast<PyObject*>(&PyEnum_Type);
  if (c.has_keywords() || c.count() > (numbers_them ? 2U : 1U) || !is_of_numbers(c, 0))
    return false;
  long number = 0;
  if (c.count() == 2) {
    if (!PyLong_CheckExact(c.argument(1).object)) return false;
    c.trace.use(c.argument(1));
    number = PyLong_AsLong(c.argument(1).object);
    if (PyErr_Occurred() != nullptr) return true;
  }
  Elements elements(c.trace, c.argument(0));
  std::vector<Object> held;
  std::vector<Value> given;
  if (numbers_them) {
    for (const Value& element : elements.values()) {
      const Object place = Object::steal(PyLong_FromLong(number++));
      c.trace.hold(place.get());
      const Value both[] = {{place.get(), 0}, element};
      const Result pair = build_tuple(&c.trace, both);
      held.push_back(Object::steal(pair.object));
      given.push_back({pair.object, pair.ref});
    }
  } else {
    given.assign(elements.values().rbegin(), elements.values().rend());
  }
  const Result list = build_list(&c.trace, given);
  const Object held_list = Object::steal(list.object);
  if (held_list) *result = get_iter(&c.trace, {list.object, list.ref});
  return true;
}

bool call_size_method(BuiltinCall& c, Result* result) {
  PyObject* callee = c.callee.object;
  const bool is_bound = PyCFunction_Check(callee);
  PyObject* size =
      is_bound ? PyCFunction_GET_SELF(callee) : (c.count() == 1 ? c.argument(0).object : nullptr);
  if (size == nullptr || !is_exactly(size, KnownType::size) || c.count() != (is_bound ? 0U : 1U))
    return false;
  const char* name =
      is_bound
          ? reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name
          : (Py_TYPE(callee) == &PyMethodDescr_Type ? PyUnicode_AsUTF8(PyDescr_NAME(callee)) : "");
  const Value self = is_bound ? c.trace.value(size) : c.argument(0);
  if (std::string_view(name) != "numel" || !has_lazy_elements(c.trace, self)) return false;
  Elements elements(c.trace, self);
  *result = product_of(c.trace, elements.values());
  return true;
}

}  // namespace smelt::bytecode
