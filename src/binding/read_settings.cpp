#include "binding/read_settings.h"

#include <limits>
#include <string>

#include "backend/backend.h"
#include "base/error.h"

namespace smelt {
namespace {

[[noreturn]] void refuse(std::string_view name, PyObject* value) {
  throw Error("the option " + std::string(name) + " can't be a " + Py_TYPE(value)->tp_name +
              " of this value");
}

std::string_view as_text(PyObject* object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    throw Error(std::string("a ") + Py_TYPE(object)->tp_name + " stands where a name should");
  }
  return {text, static_cast<size_t>(size)};
}

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

template <class Value, size_t count>
Value one_of(std::string_view option, PyObject* value, const Named<Value> (&choices)[count]) {
  for (const Named<Value>& choice : choices)
    if (PyUnicode_Check(value) && as_text(value) == choice.name) return choice.value;
  refuse(option, value);
}

// An int of any size: one that has no room asks for as much as there can be.
int as_count(std::string_view option, PyObject* value) {
  if (!PyLong_Check(value)) refuse(option, value);
  int overflow = 0;
  const long count = PyLong_AsLongAndOverflow(value, &overflow);
  if (overflow > 0 || count > std::numeric_limits<int>::max())
    return std::numeric_limits<int>::max();
  if (overflow < 0 || count < 1) refuse(option, value);
  return static_cast<int>(count);
}

bool as_flag(std::string_view option, PyObject* value) {
  if (!PyBool_Check(value)) refuse(option, value);
  return value == Py_True;
}

}  // namespace

Engine read_engine(std::string_view name) {
  if (name == "native") return Engine::native;
  if (name == "eager") return Engine::eager;
  if (name == "custom") return Engine::custom;
  if (const Backend* one = find_backend(name); one != nullptr && !one->is_native())
    return Engine::interpret;  // those to compare with
  throw Error("there is no back end named " + std::string(name));
}

void read_options(PyObject* options, Settings& settings) {
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(options, &at, &key, &value);) {
    const std::string_view name = as_text(key);
    if (name == "fusion") {
      settings.fusion = one_of<Fusion>(
          name, value,
          {{"none", Fusion::none}, {"pointwise", Fusion::pointwise}, {"full", Fusion::full}});
    } else if (name == "max_fused_nodes") {
      settings.max_fused_nodes = as_count(name, value);
    } else if (name == "numerics") {
      settings.contract = one_of<bool>(name, value, {{"default", true}, {"eager", false}});
    } else if (name == "disabled_passes") {
      if (!PyList_Check(value)) refuse(name, value);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i)
        settings.disabled_passes.emplace(as_text(PyList_GET_ITEM(value, i)));
    } else if (name == "cuda_graphs") {
      settings.cuda_graphs = one_of<GraphUse>(name, value,
                                              {{"never", GraphUse::never},
                                               {"if_faster", GraphUse::if_faster},
                                               {"always", GraphUse::always}});
    } else if (name == "sizes") {
      settings.sizes = one_of<SizeUse>(name, value,
                                       {{"fixed", SizeUse::fixed},
                                        {"changing", SizeUse::changing},
                                        {"varying", SizeUse::varying}});
    } else if (name == "specialize") {
      const bool is_none = PyLong_Check(value) && PyObject_Not(value) == 1;
      settings.specialize = is_none ? 0 : as_count(name, value);
    } else if (name == "freeze") {
      settings.freeze = as_flag(name, value);
    } else if (name == "background") {
      settings.background = as_flag(name, value);
    } else {
      throw Error("there is no option named " + std::string(name));
    }
  }
}

}  // namespace smelt
