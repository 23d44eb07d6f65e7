// An argument of an op: a literal, a reference to a tensor, or a list of arguments. Plain data: the
// same form stands in graphs (references are value ids) and in programs (references are registers).
#pragma once

#include <complex>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
struct Arg : std::variant<None, Ref, Size, double, bool, std::complex<double>, std::string, DType,
                          Device, Layout, MemoryFormat, Opaque, ArgList> {
  using variant::variant;
  // Without this an int could as well become a complex number.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Arg(T value) : variant(Size(static_cast<int64_t>(value))) {}  // NOLINT: as implicit as the others

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(*this);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(*this);
  }
  bool is_none() const { return is<None>(); }
  bool is_number() const {
    return is<Size>() || is<double>() || is<bool>() || is<std::complex<double>>();
  }
  // The same argument: of the same kind, 0.0 is not -0.0, and NaN is NaN.
  friend bool operator==(const Arg& a, const Arg& b);
};
bool operator==(const Arg& a, const Arg& b);

// none, %3, 2, 2*s0, 1.0, -inf, true, complex(1.0, 2.0), "mean", f32, cuda:0, layout strided,
// format channels_last, opaque 0, [%1, %2]: parse_arg(str(a)) == a.
std::string str(const Arg& arg);
std::optional<Arg> parse_arg(std::string_view text);
// The same inside a longer text.
Arg read_arg(Reader& reader);

// Calls `visit` on every Ref inside, in order.
void each_ref(const Arg& arg, const std::function<void(Ref)>& visit);
void each_ref(Arg& arg, const std::function<void(Ref&)>& visit);
// Calls `visit` on every Size inside.
void each_size(const Arg& arg, const std::function<void(const Size&)>& visit);

}  // namespace smelt
