// What is alive while a trace runs: iterators that stand somewhere, which can be made again, and
// objects that the program has dropped, of which the trace lets go too.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/trace/trace_steps.h"

namespace smelt::bytecode {

class TraceLifetimes : public TraceSteps {
 public:
  // An iterator over a list, tuple or dict, which can be made again at whatever position it has.
  void iterator(PyObject* iterator, Value iterated);
  // One of these that existed before is followed from now on: its position is guarded. False: it is
  // something else, or not to be followed.
  bool open_iterator(PyObject* iterator);
  bool opens_iterators = true;
  size_t opened_iterators = 0;
  // Where an iterator that the trace made or opened stands, and over what.
  bool iterated(PyObject* iterator, Value* over, int* position) const;

  struct Generator {
    Ref function = 0;        // that made it
    std::vector<Ref> slots;  // the refs of those
  };
  std::unordered_map<PyObject*, Generator> generators;  // those that are followed

  void depend_on_finaliser(PyObject* object);  // it is dropped here, in some calls
  // An object that nobody but the trace has any more, of the transients and of those noted since
  // that mark; empty: none. Then the trace does not know it any more.
  Object take_dropped(size_t since);

  std::unordered_set<PyObject*> views;  // mapping proxies of classes, which are guarded

 protected:
  ~TraceLifetimes() = default;

  // Whether it can be made again as it is now.
  bool describe(PyObject* iterator, Remade& how, std::vector<Object>& held) const;
  Ref remake(const Remade& how);

  std::vector<Ref> dropped_;  // objects from outside that the program has dropped

 private:
  bool describe_argument(Value given, Remade& how, std::vector<Object>& held) const;
  std::vector<Ref> refs_of_arguments(PyObject* iterator) const;
  Object forget(PyObject* object);
  bool is_dropped(PyObject* object);
};

}  // namespace smelt::bytecode
