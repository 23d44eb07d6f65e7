#include "capture/bytecode/cpython/libraries.h"

#include <filesystem>
#include <unordered_map>

#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {
namespace {

std::string_view view_of(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {};
  Py_ssize_t size;
  const char* found = PyUnicode_AsUTF8AndSize(text, &size);
  if (found == nullptr) PyErr_Clear();
  return found == nullptr ? std::string_view() : std::string_view(found, static_cast<size_t>(size));
}

// With a slash at its end. Asked of modules that are loaded.
std::string folder_of(const char* module) {
  const SavedError error;  // it may be asked while one is on its way
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  const Object file = Object::steal(found ? PyObject_GetAttrString(found, "__file__") : nullptr);
  PyErr_Clear();
  return file ? std::filesystem::path(text_of(file.get())).parent_path().string() + "/" : "?";
}

}  // namespace

bool is_installed(const std::string& file) {
  static const std::string folders[] = {folder_of("os"), folder_of("torch"), folder_of("smelt")};
  for (const std::string& folder : folders)
    if (file.starts_with(folder)) return true;
  return file.find("/site-packages/") != std::string::npos ||
         file.find("/dist-packages/") != std::string::npos || file.starts_with("<frozen ");
}

std::string_view library_of(PyObject* globals) {
  // Held, so that an address stands for one module. Libraries are few, and stay.
  static std::unordered_map<PyObject*, Object> known;
  static PyObject* const file_name = PyUnicode_InternFromString("__file__");
  if (const auto found = known.find(globals); found != known.end())
    return view_of(found->second.get());
  PyObject* name = PyDict_GetItemWithError(globals, names().name);
  if (name == nullptr || !PyUnicode_Check(name)) return {};
  // A library may have put an object of its own in the place of its module (torch.backends.cudnn).
  PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (module == nullptr || (PyModule_CheckExact(module) && PyModule_GetDict(module) != globals))
    return {};
  if (!is_installed(text_of(PyDict_GetItemWithError(globals, file_name)))) return {};
  Py_INCREF(globals);
  return view_of(known.emplace(globals, Object::share(name)).first->second.get());
}

bool is_of_package(PyObject* globals, std::string_view package) {
  const std::string_view library = library_of(globals);
  return library.starts_with(package) &&
         (library.size() == package.size() || library[package.size()] == '.');
}

std::string_view module_of(PyObject* function) {
  return library_of(PyFunction_GET_GLOBALS(function));
}

bool is_in_module(PyObject* function, std::string_view module) {
  return module_of(function) == module;
}

bool is_function_of(PyObject* function, std::string_view module, std::string_view name) {
  const PyObject* code = PyFunction_GET_CODE(function);
  return module_of(function) == module &&
         text_of(reinterpret_cast<const PyCodeObject*>(code)->co_qualname) == name;
}

}  // namespace smelt::bytecode
