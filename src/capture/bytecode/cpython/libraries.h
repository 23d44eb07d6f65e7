// Whether code is a library's. A module's name is no evidence: a program may have modules of its
// own that are called `random` or `copy`. So objects are asked: the globals that code runs with are
// those of the module of that name, and the module's file is where libraries are installed.
#pragma once

#include <Python.h>

#include <string>
#include <string_view>

namespace smelt::bytecode {

// The module of a library whose globals these are, "torch.nn.functional"; empty: they are the
// user's.
std::string_view library_of(PyObject* globals);
// They are those of that package, or of a module inside of it.
bool is_of_package(PyObject* globals, std::string_view package);
// The file is one of Python's, PyTorch's or smelt's own, or in a folder that packages are installed
// into.
bool is_installed(const std::string& file);

// The module of a library that a Python function is of; empty: it is the user's.
std::string_view module_of(PyObject* function);
// The function is of that module of a library.
bool is_in_module(PyObject* function, std::string_view module);
// The function of that name in one of torch's modules.
bool is_function_of(PyObject* function, std::string_view module, std::string_view name);

}  // namespace smelt::bytecode
