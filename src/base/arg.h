// An argument of an op: a literal, a reference to a tensor, or a list of arguments. Plain data: the
// same form stands in graphs (references are value ids) and in programs (references are registers).
#pragma once

#include <complex>
#include <compare>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/size.h"
#include "base/type.h"

namespace smelt {

struct None {
  friend bool operator==(None, None) = default;
};
// A tensor: value id in a Graph, register in a Program.
struct Ref {
  int32_t id = -1;
  friend bool operator==(Ref, Ref) = default;
};
// torch's enums kept as their numbers; printed by name.
struct Layout {
  int8_t value = 0;
  friend bool operator==(Layout, Layout) = default;
};
struct MemoryFormat {
  int8_t value = 0;
  friend bool operator==(MemoryFormat, MemoryFormat) = default;
};
// Something only the capturing side understands (a torch.Generator, a script object): an index into
// the handles that travel beside the graph.
struct Opaque {
  int32_t index = -1;
  friend bool operator==(Opaque, Opaque) = default;
};

struct Arg;
using ArgList = std::vector<Arg>;

// An integer is a Size, so that it may be symbolic.
struct Arg : std::variant<None, Ref, Size, double, bool, std::complex<double>, std::string, DType, Device,
                          Layout, MemoryFormat, Opaque, ArgList> {
  using variant::variant;

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(*this);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(*this);
  }
  bool is_none() const { return is<None>(); }
  bool is_number() const { return is<Size>() || is<double>() || is<bool>() || is<std::complex<double>>(); }
  friend bool operator==(const Arg&, const Arg&) = default;
};

// "%3", "2", "1.5", "true", "\"none\"", "dtype f32", "[%1, %2]", "none": parse(print(a)) == a, also for
// infinities, NaN and -0.0.
std::string str(const Arg& arg);
std::optional<Arg> parse_arg(std::string_view text);

// Calls `visit` on every Ref inside, in order.
void each_ref(const Arg& arg, const std::function<void(Ref)>& visit);
void each_ref(Arg& arg, const std::function<void(Ref&)>& visit);
// Calls `visit` on every Size inside.
void each_size(const Arg& arg, const std::function<void(const Size&)>& visit);

}  // namespace smelt
