#include "capture/bytecode/cpython/names.h"

namespace smelt::bytecode {

const Names& names() {
  static const Names all = [] {
    const auto intern = [](const char* text) { return PyUnicode_InternFromString(text); };
    Names n;
    n.getattr = intern("__getattr__");
    n.getattribute = intern("__getattribute__");
    n.setattr = intern("__setattr__");
    n.delattr = intern("__delattr__");
    n.get = intern("__get__");
    n.set = intern("__set__");
    n.del = intern("__delete__");
    n.dict = intern("__dict__");
    n.cls = intern("__class__");
    n.func = intern("__func__");
    n.self = intern("__self__");
    n.fget = intern("fget");
    n.fset = intern("fset");
    n.fdel = intern("fdel");
    n.call = intern("__call__");
    n.init = intern("__init__");
    n.new_ = intern("__new__");
    n.iter = intern("__iter__");
    n.next = intern("__next__");
    n.len = intern("__len__");
    n.bool_ = intern("__bool__");
    n.getitem = intern("__getitem__");
    n.setitem = intern("__setitem__");
    n.delitem = intern("__delitem__");
    n.contains = intern("__contains__");
    n.missing = intern("__missing__");
    n.wrapped = intern("__wrapped__");
    n.enter = intern("__enter__");
    n.exit = intern("__exit__");
    n.index = intern("__index__");
    n.eq = intern("__eq__");
    n.hash = intern("__hash__");
    n.name = intern("__name__");
    n.keys = intern("keys");
    n.getattr_function = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
    Py_INCREF(n.getattr_function);
    return n;
  }();
  return all;
}

}  // namespace smelt::bytecode
