// Interned names and functions that the operations look for.
#pragma once

#include <Python.h>

namespace smelt::bytecode {

struct Names {
  PyObject *getattr, *getattribute, *setattr, *delattr, *get, *set, *del, *dict, *cls, *func, *self,
      *fget, *fset, *fdel, *call, *init, *new_, *iter, *next, *len, *bool_, *getitem, *setitem,
      *delitem, *contains, *missing, *wrapped, *enter, *exit, *index, *eq, *hash, *name, *keys;
  PyObject* getattr_function;  // builtins.getattr
};

const Names& names();

}  // namespace smelt::bytecode
