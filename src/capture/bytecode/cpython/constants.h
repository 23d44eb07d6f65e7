// Kinds of constants.
#pragma once

#include <Python.h>

namespace smelt::bytecode {

// int, float, complex, str, bytes, bool, None, Ellipsis, NotImplemented: immutable, known by value.
// Exact types only.
bool is_atom(PyObject* object);
// Types, functions, builtins, modules, code, dtypes, enum members...: known by identity.
bool is_fixed(PyObject* object);
// An atom, a fixed object, a number of numpy's, or an exact tuple, frozenset or slice of such.
bool is_constant(PyObject* object);

// None, a bool, Ellipsis, NotImplemented.
bool is_singleton(PyObject* object);
// There is only one of these, or it does not matter: atoms, and the empty tuple.
bool is_shared(PyObject* object);
// torch.device: there may be several that are the same.
bool is_device(PyObject* object);
// Of a constant: code makes it anew, so that it has an identity of its own. (That of a number or a
// str is of no interest: CPython itself keeps some of them and makes others again.)
bool is_compound(PyObject* constant);
// Objects of the type are hashed and compared by what they are, not by what is in them.
bool is_known_by_identity(const PyTypeObject* type);
// numpy.float64 and the like: constants that are known by value.
bool is_numpy_number(const PyTypeObject* type);
// A set or frozenset with nothing but constants in it.
bool is_constant_set(PyObject* set);

// torch.return_types.topk: a tuple with names, all of whose fields are its elements. Made of a
// tuple by its type.
bool is_struct_sequence(PyObject* object);
// An object of a class written in Python, with nothing in it but its attributes.
bool is_plain_instance(PyObject* object);
// A function behind functools.lru_cache.
bool is_cached_function(PyObject* object);

}  // namespace smelt::bytecode
