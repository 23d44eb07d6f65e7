#include "base/arg.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/reader.h"

namespace smelt {
namespace {

// In the order of c10::Layout and c10::MemoryFormat.
constexpr auto kLayouts =
    std::to_array<std::string_view>({"strided", "sparse_coo", "sparse_csr", "mkldnn", "sparse_csc",
                                     "sparse_bsr", "sparse_bsc", "jagged"});
constexpr auto kFormats = std::to_array<std::string_view>(
    {"contiguous", "preserve", "channels_last", "channels_last_3d"});

template <size_t N>
std::string enum_name(const std::array<std::string_view, N>& names, int8_t value) {
  SMELT_CHECK(value >= 0 && static_cast<size_t>(value) < N,
              "an enumeration of torch has no value " + std::to_string(value));
  return std::string(names[value]);
}

template <size_t N>
int8_t read_enum(Reader& reader, const std::array<std::string_view, N>& names) {
  for (size_t i = 0; i < N; ++i) {
    if (reader.accept_word(names[i])) return static_cast<int8_t>(i);
  }
  std::string expected = "one of";
  for (std::string_view name : names) expected += " " + std::string(name);
  reader.fail(expected);
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// The shortest digits that read back as the same double, never mistaken for an integer.
std::string str(double value) {
  char buffer[32];
  if (std::isnan(value)) return "nan";
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// The text of a double that comes next, empty where none does: a size may begin with digits too.
std::string_view peek_double(Reader& reader) {
  std::string_view rest = reader.rest_until(",])\n");
  std::string_view magnitude = rest.starts_with('-') ? rest.substr(1) : rest;
  if (magnitude == "inf" || magnitude == "nan") return rest;
  if (magnitude.empty() || magnitude[0] < '0' || magnitude[0] > '9') return {};
  if (magnitude.find_first_of(".e") == std::string_view::npos) return {};
  return rest;
}

double read_double(Reader& reader) {
  std::string_view text = peek_double(reader);
  double value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || problem != std::errc() || end != text.data() + text.size())
    reader.fail("a floating-point number, as 1.0");
  reader.skip(text.size());
  return value;
}

Arg read_list(Reader& reader) {
  ArgList list;
  if (reader.accept("]")) return list;
  do {
    list.push_back(read_arg(reader));
  } while (reader.accept(","));
  reader.expect("]");
  return list;
}

// Arguments that begin with a word of their own.
std::optional<Arg> accept_named(Reader& reader) {
  if (reader.accept_word("none")) return None{};
  if (reader.accept_word("true")) return true;
  if (reader.accept_word("false")) return false;
  if (reader.accept_word("layout")) return Layout{read_enum(reader, kLayouts)};
  if (reader.accept_word("format")) return MemoryFormat{read_enum(reader, kFormats)};
  if (reader.accept_word("opaque")) return Opaque{reader.index("the index of an opaque argument")};
  if (reader.accept_word("complex")) {
    reader.expect("(");
    double real = read_double(reader);
    reader.expect(",");
    double imaginary = read_double(reader);
    reader.expect(")");
    return std::complex<double>(real, imaginary);
  }
  if (auto dtype = parse_dtype(reader.peek_word())) {
    reader.skip(name_of(*dtype).size());
    return *dtype;
  }
  if (auto device = accept_device(reader)) return *device;
  return std::nullopt;
}

struct Printer {
  std::string operator()(None) const { return "none"; }
  std::string operator()(Ref ref) const { return "%" + std::to_string(ref.id); }
  std::string operator()(const Size& size) const { return size.str(); }
  std::string operator()(double value) const { return str(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::complex<double>& value) const {
    return "complex(" + str(value.real()) + ", " + str(value.imag()) + ")";
  }
  std::string operator()(const std::string& text) const { return quote(text); }
  std::string operator()(DType dtype) const { return std::string(name_of(dtype)); }
  std::string operator()(Device device) const { return device.str(); }
  std::string operator()(Layout layout) const {
    return "layout " + enum_name(kLayouts, layout.value);
  }
  std::string operator()(MemoryFormat format) const {
    return "format " + enum_name(kFormats, format.value);
  }
  std::string operator()(Opaque opaque) const { return "opaque " + std::to_string(opaque.index); }
  std::string operator()(const ArgList& list) const {
    std::string text = "[";
    for (const Arg& arg : list) {
      if (&arg != &list.front()) text += ", ";
      text += smelt::str(arg);
    }
    return text + "]";
  }
};

}  // namespace

bool operator==(const Arg& a, const Arg& b) {
  if (a.index() != b.index()) return false;
  if (a.is<double>()) return same(a.get<double>(), b.get<double>());
  if (a.is<std::complex<double>>()) {
    const auto &left = a.get<std::complex<double>>(), &right = b.get<std::complex<double>>();
    return same(left.real(), right.real()) && same(left.imag(), right.imag());
  }
  // Lists compare their elements with this operator again.
  return static_cast<const Arg::variant&>(a) == static_cast<const Arg::variant&>(b);
}

std::string str(const Arg& arg) {
  return std::visit(Printer{}, static_cast<const Arg::variant&>(arg));
}

Arg read_arg(Reader& reader) {
  if (reader.accept("%")) return Ref{reader.index("the number of a value")};
  if (reader.accept("[")) return read_list(reader);
  if (reader.next_is("\"")) return reader.quoted("a string");
  if (!peek_double(reader).empty()) return read_double(reader);
  if (auto named = accept_named(reader)) return *named;
  return read_size(reader);
}

std::optional<Arg> parse_arg(std::string_view text) {
  Reader reader(text);
  try {
    Arg arg = read_arg(reader);
    if (reader.at_end()) return arg;
  } catch (const Error&) {
  }
  return std::nullopt;
}

void each_ref(const Arg& arg, const std::function<void(Ref)>& visit) {
  if (arg.is<Ref>()) visit(arg.get<Ref>());
  if (!arg.is<ArgList>()) return;
  for (const Arg& element : arg.get<ArgList>()) each_ref(element, visit);
}

void each_ref(Arg& arg, const std::function<void(Ref&)>& visit) {
  if (Ref* ref = std::get_if<Ref>(&arg)) visit(*ref);
  ArgList* list = std::get_if<ArgList>(&arg);
  if (!list) return;
  for (Arg& element : *list) each_ref(element, visit);
}

void each_size(const Arg& arg, const std::function<void(const Size&)>& visit) {
  if (arg.is<Size>()) visit(arg.get<Size>());
  if (!arg.is<ArgList>()) return;
  for (const Arg& element : arg.get<ArgList>()) each_size(element, visit);
}

}  // namespace smelt
