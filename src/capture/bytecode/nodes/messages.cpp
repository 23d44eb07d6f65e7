#include "capture/bytecode/nodes/messages.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {
namespace {

// Who wrote the code of a frame.
enum class Author : uint8_t { user, library, torch };

std::string file_of(Frame frame) { return text_of(frame.code()->co_filename); }

Author author_of(Frame frame) {
  const std::string file = file_of(frame);
  // Graphs that torch has written down as code have files of that name.
  if (is_of_package(frame.globals(), "torch") || is_of_package(frame.globals(), "smelt") ||
      file.starts_with("<eval_with_key>"))
    return Author::torch;
  return is_installed(file) ? Author::library : Author::user;
}

// The frames that `followed` are, and those that called them, innermost first.
std::vector<Frame> stack_of(PyThreadState* thread, std::span<const Frame> followed) {
  std::vector<Frame> stack(followed.rbegin(), followed.rend());
  const auto is_known = [&](Frame frame) {
    for (const Frame& one : followed)
      if (one.raw() == frame.raw()) return true;
    return false;
  };
  for (auto frame = running_frame(thread); frame; frame = frame->caller())
    if (!is_known(*frame)) stack.push_back(*frame);
  return stack;
}

int line_of(Frame frame) {
  const int line = frame.line();
  return line > 0 ? line : frame.code()->co_firstlineno;
}

std::string short_name(const std::string& file) {
  std::error_code failed;
  const std::string here = std::filesystem::current_path(failed).string() + "/";
  return !failed && file.starts_with(here) ? file.substr(here.size()) : file;
}

std::string place_of(Frame frame) {
  return short_name(file_of(frame)) + ":" + std::to_string(line_of(frame));
}

const Frame* innermost(const std::vector<Frame>& stack, Author most) {
  for (const Frame& frame : stack)
    if (author_of(frame) <= most) return &frame;
  return nullptr;
}

// The module that the frame is a method of; nullptr: it is none.
PyObject* module_of(Frame frame) {
  static PyTypeObject* const type = [] {
    const Object nn = Object::steal(PyImport_ImportModule("torch.nn"));
    return reinterpret_cast<PyTypeObject*>(nn ? PyObject_GetAttrString(nn.get(), "Module")
                                              : nullptr);
  }();
  PyObject* first = frame.code()->co_argcount > 0 ? frame.slots()[0] : nullptr;
  if (first != nullptr && PyCell_Check(first)) first = PyCell_GET(first);
  return first != nullptr && type != nullptr && PyType_IsSubtype(Py_TYPE(first), type) ? first
                                                                                       : nullptr;
}

// A hook gets the module as its first argument too.
bool is_method_of(PyObject* module, Frame frame) {
  PyObject* found = _PyType_Lookup(Py_TYPE(module), frame.code()->co_name);
  return found != nullptr && PyFunction_Check(found) &&
         PyFunction_GET_CODE(found) == reinterpret_cast<PyObject*>(frame.code());
}

PyObject* modules_in(PyObject* module) {
  static PyObject* const name = PyUnicode_InternFromString("_modules");
  PyObject** dict = _PyObject_GetDictPtr(module);
  PyObject* found =
      dict != nullptr && *dict != nullptr ? PyDict_GetItemWithError(*dict, name) : nullptr;
  return found != nullptr && PyDict_Check(found) ? found : nullptr;
}

// "transformer.h.0": by which attributes the one leads to the other; nothing: it does not.
std::optional<std::string> path_between(PyObject* outer, PyObject* inner, int depth = 0) {
  constexpr int kDeepest = 32;
  if (outer == inner) return "";
  PyObject* modules = modules_in(outer);
  if (modules == nullptr || depth > kDeepest) return std::nullopt;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(modules, &at, &key, &value)) {
    if (value == Py_None) continue;
    if (const auto rest = path_between(value, inner, depth + 1))
      return text_of(key) + (rest->empty() ? "" : "." + *rest);
  }
  return std::nullopt;
}

// "GPT2Attention (transformer.h.0.attn)"; the name is the one that the outermost module knows it
// by.
std::string describe_module(const std::vector<Frame>& stack, PyObject* module) {
  std::string path;
  for (const Frame& frame : stack) {
    PyObject* outer = module_of(frame);
    if (outer == nullptr || outer == module) continue;
    if (const auto found = path_between(outer, module)) path = *found;
  }
  const std::string name = Py_TYPE(module)->tp_name;
  return path.empty() ? name : name + " (" + path + ")";
}

// A name as the user writes it: without "builtins.", and what was defined in a function by its own
// name.
std::string in_module(PyObject* module, const std::string& qualified_name) {
  constexpr std::string_view kLocal = "<locals>.";
  const size_t local = qualified_name.rfind(kLocal);
  if (local != std::string::npos) return qualified_name.substr(local + kLocal.size());
  const std::string prefix = module != nullptr && PyUnicode_Check(module) ? text_of(module) : "";
  if (prefix.empty() || prefix == "builtins" || prefix == "__main__") return qualified_name;
  return prefix + "." + qualified_name;
}

PyObject* innermost_module(const std::vector<Frame>& stack, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (PyObject* module = module_of(stack[i])) return module;
  return nullptr;
}

}  // namespace

void locate(Break& at, PyThreadState* thread, std::span<const Frame> followed) {
  const SavedError error;
  const std::vector<Frame> stack = stack_of(thread, followed);
  if (stack.empty()) return;
  const Frame* found = innermost(stack, Author::library);
  const Frame& place = found != nullptr ? *found : stack.front();
  at.file = file_of(place);
  at.line = line_of(place);
  at.function = text_of(place.code()->co_name);
  PyObject* own = module_of(place);
  if (own != nullptr && is_method_of(own, place))
    at.function = std::string(Py_TYPE(own)->tp_name) + "." + at.function;
  // A module further in, whose code is torch's, or the module itself by its name.
  if (PyObject* module = innermost_module(stack, followed.size()))
    if (std::string text = describe_module(stack, module); module != own || text.back() == ')')
      at.module = std::move(text);
  const Frame* user = innermost(stack, Author::user);
  if (user != nullptr && user->raw() != place.raw()) at.called_at = place_of(*user);
}

std::string describe_start(PyThreadState* thread, Frame root, int offset) {
  const SavedError error;
  const std::vector<Frame> stack = stack_of(thread, std::span(&root, 1));
  const int line = PyCode_Addr2Line(root.code(), offset * 2);
  PyObject* module = module_of(root);
  const bool is_users = author_of(root) == Author::user;
  std::string text =
      module != nullptr ? describe_module(stack, module) : text_of(root.code()->co_qualname);
  if (is_users || module == nullptr)
    text += " at " + short_name(file_of(root)) + ":" + std::to_string(line);
  if (is_users) return text;
  const Frame* user = innermost(stack, Author::user);
  return user != nullptr ? text + ", called at " + place_of(*user) : text;
}

std::string name_arguments(Frame root, std::string reason) {
  constexpr std::string_view kPositional = "args[", kNamed = "kwargs['";
  static PyObject* const forward = PyUnicode_InternFromString("forward");
  constexpr std::string_view kOnStack = "<stack ";
  for (size_t at = reason.find(kOnStack); at != std::string::npos; at = reason.find(kOnStack))
    reason.replace(at, reason.find('>', at) - at + 1, "an unnamed value");
  PyObject* module = module_of(root);
  if (module == nullptr || author_of(root) != Author::torch) return reason;
  if (reason.starts_with(kNamed)) {
    const size_t end = reason.find("']");
    if (end == std::string::npos) return reason;
    return reason.substr(kNamed.size(), end - kNamed.size()) + reason.substr(end + 2);
  }
  PyObject* function = _PyType_Lookup(Py_TYPE(module), forward);
  if (!reason.starts_with(kPositional) || function == nullptr || !PyFunction_Check(function))
    return reason;
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const size_t end = reason.find(']');
  const int index = std::atoi(reason.c_str() + kPositional.size()) + 1;
  if (end == std::string::npos || index >= code->co_argcount) return reason;
  return text_of(PyTuple_GET_ITEM(code->co_localsplusnames, index)) + reason.substr(end + 1);
}

std::string describe_callee(PyObject* callee) {
  const SavedError error;
  if (PyMethod_Check(callee)) {
    const Object name = Object::steal(PyObject_GetAttr(callee, names().name));
    const std::string type = Py_TYPE(PyMethod_GET_SELF(callee))->tp_name;
    return text_of(name.get()) == "_wrapped_call_impl" ? type : type + "." + text_of(name.get());
  }
  if (PyFunction_Check(callee)) {
    const auto* function = reinterpret_cast<PyFunctionObject*>(callee);
    PyObject* wrapped =
        function->func_dict == nullptr
            ? nullptr
            : PyDict_GetItemString(function->func_dict, "_torchdynamo_orig_callable");
    if (wrapped != nullptr && PyMethod_Check(wrapped)) return describe_callee(wrapped);
    return in_module(function->func_module, text_of(function->func_qualname));
  }
  if (PyCFunction_Check(callee)) {
    const auto* function = reinterpret_cast<PyCFunctionObject*>(callee);
    const std::string name = function->m_ml->ml_name;
    PyObject* self = function->m_self;
    if (self == nullptr || PyModule_Check(self)) return in_module(function->m_module, name);
    const PyTypeObject* type =
        PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
    return std::string(type->tp_name) + "." + name;
  }
  if (PyType_Check(callee)) return reinterpret_cast<PyTypeObject*>(callee)->tp_name;
  if (Py_TYPE(callee) == &PyMethodDescr_Type || Py_TYPE(callee) == &PyWrapperDescr_Type)
    return std::string(PyDescr_TYPE(callee)->tp_name) + "." + text_of(PyDescr_NAME(callee));
  return std::string("an object of type ") + Py_TYPE(callee)->tp_name;
}

std::string limit_text(const std::string& place, int limit, const std::string& reason) {
  return "smelt: " + place + " was compiled " + std::to_string(limit) +
         " times; from now on Python runs what does not fit these. The last reason: " + reason +
         ". If so many variants are wanted, compile it with options={'recompile_limit': " +
         std::to_string(4 * limit) + "}.";
}

void raise_recompile(const std::string& place, const std::string& reason) {
  const std::string text =
      place + ": nothing that is compiled fits this call, and the stance is 'fail_on_recompile' (" +
      (reason.empty() ? "nothing has been compiled here yet" : reason) +
      "). Call smelt.warmup with inputs like these before, or use 'eager_on_recompile'.";
  const Object module = Object::steal(PyImport_ImportModule("smelt._errors"));
  const Object type =
      Object::steal(module ? PyObject_GetAttrString(module.get(), "RecompileError") : nullptr);
  if (!type) PyErr_Clear();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, text.c_str());
}

bool warn(PyThreadState* thread, const std::string& text) {
  const std::vector<Frame> stack = stack_of(thread, {});
  const Frame* user = innermost(stack, Author::user);
  if (user == nullptr) return PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) == 0;
  const Object message =
      Object::steal(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
  const Object name = Object::share(PyDict_GetItemWithError(user->globals(), names().name));
  if (!message) return false;
  return PyErr_WarnExplicitObject(PyExc_RuntimeWarning, message.get(), user->code()->co_filename,
                                  line_of(*user), name.get(), nullptr) == 0;
}

}  // namespace smelt::bytecode
