// The callables that smelt.compile puts in the place of functions and of classes' __call__. Types
// of the plain C API, since what a call costs on top of its program is what a compiled function is
// measured by.
#pragma once

#include <Python.h>

#include <memory>

#include "capture/bytecode/run/compiled.h"

namespace smelt {

// smelt._native.CompiledFunction
struct CompiledFunction {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* function;  // what is run: a Python function
  PyObject* original;  // what smelt.compile was given
  PyObject* bound;     // the first argument of each call; nullptr: none
  PyObject* settings;  // of the Python side
  PyObject* dict;
  PyObject* weak_references;
  PyObject* watch;  // called in the place of one call in so many, as watch(self, args, kwargs)
  int watch_every;
  int until_watched;
  std::shared_ptr<bytecode::Compiled> compiled;
};

extern PyTypeObject* compiled_function_type;

// Calls the function with `first` in front of the arguments args[skip], args[skip + 1], ...
PyObject* run_with_first(CompiledFunction* self, PyObject* first, PyObject* const* args,
                         size_t skip, size_t nargsf, PyObject* names);

// smelt._native.InstanceCall: __call__ of a class whose instances each have a callable of their own
// in a slot. A new reference; nullptr with a Python error set.
PyTypeObject* make_instance_call_type(PyObject* module);

}  // namespace smelt
