// The parts of the Python module, one function each.
#pragma once

#include <pybind11/pybind11.h>

namespace smelt {

void bind_record(pybind11::module_& m);   // Graph, record
void bind_infer(pybind11::module_& m);    // infer_types, for the tests of the shape rules
void bind_tensors(pybind11::module_& m);  // CapturedGraph; what the interpreter asks about tensors
void bind_compile(pybind11::module_& m);  // what smelt.compile is made of
void bind_self_test(pybind11::module_& m);      // whether borrowed internals are as they should be
void bind_pass_timer();                         // how it learns what backward passes cost
void bind_background(pybind11::module_& m);     // threads that compile while calls go on
void bind_capture_pools(pybind11::module_& m);  // memory of CUDA graphs, and their counts

}  // namespace smelt
