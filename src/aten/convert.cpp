#include "aten/convert.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "aten/size_node.h"
#include "base/error.h"
#include "graph/numbers.h"

namespace smelt {

std::optional<DType> to_dtype(c10::ScalarType type) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Byte: return DType::u8;
    case ScalarType::Char: return DType::i8;
    case ScalarType::Short: return DType::i16;
    case ScalarType::Int: return DType::i32;
    case ScalarType::Long: return DType::i64;
    case ScalarType::Half: return DType::f16;
    case ScalarType::Float: return DType::f32;
    case ScalarType::Double: return DType::f64;
    case ScalarType::ComplexHalf: return DType::c32;
    case ScalarType::ComplexFloat: return DType::c64;
    case ScalarType::ComplexDouble: return DType::c128;
    case ScalarType::Bool: return DType::b8;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Float8_e5m2: return DType::f8e5m2;
    case ScalarType::Float8_e4m3fn: return DType::f8e4m3fn;
    case ScalarType::Float8_e5m2fnuz: return DType::f8e5m2fnuz;
    case ScalarType::Float8_e4m3fnuz: return DType::f8e4m3fnuz;
    case ScalarType::UInt16: return DType::u16;
    case ScalarType::UInt32: return DType::u32;
    case ScalarType::UInt64: return DType::u64;
    default: return std::nullopt;
  }
}

std::optional<DType> default_dtype() { return to_dtype(c10::get_default_dtype_as_scalartype()); }

c10::ScalarType to_scalar_type(DType dtype) {
  using c10::ScalarType;
  switch (dtype) {
    case DType::u8: return ScalarType::Byte;
    case DType::i8: return ScalarType::Char;
    case DType::i16: return ScalarType::Short;
    case DType::i32: return ScalarType::Int;
    case DType::i64: return ScalarType::Long;
    case DType::f16: return ScalarType::Half;
    case DType::f32: return ScalarType::Float;
    case DType::f64: return ScalarType::Double;
    case DType::c32: return ScalarType::ComplexHalf;
    case DType::c64: return ScalarType::ComplexFloat;
    case DType::c128: return ScalarType::ComplexDouble;
    case DType::b8: return ScalarType::Bool;
    case DType::bf16: return ScalarType::BFloat16;
    case DType::f8e5m2: return ScalarType::Float8_e5m2;
    case DType::f8e4m3fn: return ScalarType::Float8_e4m3fn;
    case DType::f8e5m2fnuz: return ScalarType::Float8_e5m2fnuz;
    case DType::f8e4m3fnuz: return ScalarType::Float8_e4m3fnuz;
    case DType::u16: return ScalarType::UInt16;
    case DType::u32: return ScalarType::UInt32;
    case DType::u64: return ScalarType::UInt64;
  }
  SMELT_CHECK(false, "no such dtype");
}

Device to_device(c10::Device device) {
  return Device{static_cast<int8_t>(device.type()), static_cast<int8_t>(device.index())};
}

c10::Device to_c10(Device device) {
  return c10::Device(static_cast<c10::DeviceType>(device.type), device.index);
}

Sizes to_sizes(c10::SymIntArrayRef values) {
  Sizes sizes;
  sizes.reserve(values.size());
  for (const c10::SymInt& value : values) sizes.push_back(to_size(value));
  return sizes;
}

std::vector<int64_t> known_sizes(std::span<const Size> sizes) {
  std::vector<int64_t> known;
  known.reserve(sizes.size());
  for (const Size& size : sizes) known.push_back(size.known());
  return known;
}

TensorType type_of(const at::Tensor& tensor) {
  TensorType type;
  type.dtype = to_dtype(tensor.scalar_type()).value();
  type.device = to_device(tensor.device());
  type.sizes = to_sizes(tensor.sym_sizes());
  type.strides = to_sizes(tensor.sym_strides());
  type.offset = to_size(tensor.sym_storage_offset());
  type.conj = tensor.is_conj();
  type.neg = tensor.is_neg();
  type.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return type;
}

namespace {

// The type inside Optional[...].
c10::TypePtr strip_optional(c10::TypePtr type) {
  while (type->kind() == c10::TypeKind::OptionalType)
    type = type->castRaw<c10::OptionalType>()->getElementType();
  return type;
}

Arg integer_arg(int64_t value, c10::TypeKind kind) {
  switch (kind) {
    case c10::TypeKind::ScalarTypeType:
      if (auto dtype = to_dtype(static_cast<c10::ScalarType>(value))) return Arg(*dtype);
      return Arg(Size(value));
    case c10::TypeKind::LayoutType: return Arg(Layout{static_cast<int8_t>(value)});
    case c10::TypeKind::MemoryFormatType: return Arg(MemoryFormat{static_cast<int8_t>(value)});
    default: return Arg(Size(value));
  }
}

// "cuda" means the current one.
c10::Device with_index(c10::Device device) {
  if (device.has_index() || !device.is_cuda() || !c10::impl::hasDeviceGuardImpl(device.type()))
    return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace

Arg number_arg(const at::Scalar& value) {
  if (value.isSymbolic()) {
    if (value.isBoolean()) return Arg(value.toBool());
    if (value.isFloatingPoint()) return Arg(value.toSymFloat().guard_float(__FILE__, __LINE__));
    return Arg(to_size(value.toSymInt()));
  }
  if (value.isBoolean()) return Arg(value.toBool());
  if (value.isIntegral(/*includeBool=*/false)) return Arg(Size(value.toLong()));
  if (value.isComplex()) {
    const auto complex = value.toComplexDouble();
    return Arg(std::complex<double>(complex.real(), complex.imag()));
  }
  return Arg(value.toDouble());
}

Arg to_arg(const c10::IValue& value, const c10::TypePtr& declared, const ArgWriter& writer) {
  if (value.isNone()) return Arg(None{});
  const c10::TypePtr type = strip_optional(declared);
  if (value.isTensor())
    return value.toTensor().defined() ? writer.tensor(value.toTensor()) : Arg(None{});
  if (value.isInt()) return integer_arg(value.toInt(), type->kind());
  if (value.isBool()) return Arg(value.toBool());
  if (value.isDouble()) return Arg(value.toDouble());
  if (const auto number = recorded_number(value)) {
    if (number->value < 0) return numbers::to_arg(*number->example);
    const bool takes_numbers = type->kind() == c10::TypeKind::NumberType;
    if (takes_numbers && writer.number) return writer.number(*number);
    value.toScalar().toDouble();  // it says that its value is not known
  }
  if (value.isSymInt()) return Arg(to_size(value.toSymInt()));
  if (value.isSymFloat()) return Arg(value.toSymFloat().guard_float(__FILE__, __LINE__));
  if (value.isSymBool()) return Arg(value.toSymBool().guard_bool(__FILE__, __LINE__));
  if (value.isComplexDouble() || value.isScalar()) return number_arg(value.toScalar());
  if (value.isString()) return Arg(value.toStringRef());
  if (value.isDevice()) return Arg(to_device(with_index(value.toDevice())));
  if (value.isList()) {
    const auto items = value.toListRef();
    const c10::TypePtr element = type->kind() == c10::TypeKind::ListType
                                     ? type->castRaw<c10::ListType>()->getElementType()
                                     : c10::TypePtr(c10::AnyType::get());
    ArgList list;
    list.reserve(items.size());
    for (const c10::IValue& item : items) list.push_back(to_arg(item, element, writer));
    return Arg(std::move(list));
  }
  return writer.opaque(value);
}

at::Scalar scalar_of(const Arg& number) {
  if (number.is<bool>()) return number.get<bool>();
  if (number.is<Size>()) return number.get<Size>().known();
  if (number.is<double>()) return number.get<double>();
  const auto value = number.get<std::complex<double>>();
  return c10::complex<double>(value.real(), value.imag());
}

at::Tensor wrapped_number(const Arg& number) {
  const at::Scalar scalar = scalar_of(number);
  at::Tensor tensor =
      at::detail::scalar_tensor_static(scalar, scalar.type(), c10::Device(c10::kCPU));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

namespace {

c10::IValue list_to_ivalue(const ArgList& list, const c10::TypePtr& element,
                           const ArgReader& reader) {
  using c10::TypeKind;
  switch (element->kind()) {
    case TypeKind::TensorType: {
      c10::List<at::Tensor> out;
      out.reserve(list.size());
      for (const Arg& arg : list) out.push_back(to_ivalue(arg, element, reader).toTensor());
      return out;
    }
    case TypeKind::OptionalType: {
      if (strip_optional(element)->kind() == TypeKind::NumberType) {
        c10::List<std::optional<at::Scalar>> out;
        for (const Arg& arg : list) {
          const c10::IValue number = to_ivalue(arg, element, reader);
          out.push_back(number.isNone() ? std::nullopt
                                        : std::optional<at::Scalar>(number.toScalar()));
        }
        return out;
      }
      c10::List<std::optional<at::Tensor>> out;
      for (const Arg& arg : list)
        out.push_back(arg.is_none() ? std::nullopt
                                    : std::optional<at::Tensor>(reader.tensor(arg.get<Ref>())));
      return out;
    }
    case TypeKind::FloatType: {
      c10::List<double> out;
      for (const Arg& arg : list) out.push_back(to_ivalue(arg, element, reader).toDouble());
      return out;
    }
    case TypeKind::BoolType: {
      c10::List<bool> out;
      for (const Arg& arg : list) out.push_back(arg.get<bool>());
      return out;
    }
    case TypeKind::NumberType: {
      c10::List<at::Scalar> out;
      for (const Arg& arg : list) out.push_back(to_ivalue(arg, element, reader).toScalar());
      return out;
    }
    case TypeKind::StringType: {
      c10::List<std::string> out;
      for (const Arg& arg : list) out.push_back(arg.get<std::string>());
      return out;
    }
    default: {
      c10::List<int64_t> out;
      for (const Arg& arg : list) out.push_back(to_ivalue(arg, element, reader).toInt());
      return out;
    }
  }
}

}  // namespace

c10::IValue to_ivalue(const Arg& arg, const c10::TypePtr& declared, const ArgReader& reader) {
  // An undefined tensor where the op takes no None.
  if (arg.is_none())
    return declared->kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor())
                                                         : c10::IValue();
  const c10::TypePtr type = strip_optional(declared);
  const c10::TypeKind kind = type->kind();
  if (arg.is<Ref>() && kind == c10::TypeKind::NumberType) return reader.number(arg.get<Ref>());
  if (arg.is<Ref>()) return reader.tensor(arg.get<Ref>());
  if (arg.is<Opaque>()) return reader.opaque(arg.get<Opaque>());
  if (arg.is<ArgList>()) {
    const c10::TypePtr element = kind == c10::TypeKind::ListType
                                     ? type->castRaw<c10::ListType>()->getElementType()
                                     : c10::TypePtr(c10::IntType::get());
    return list_to_ivalue(arg.get<ArgList>(), element, reader);
  }
  if (arg.is_number() && kind == c10::TypeKind::TensorType) {
    if (!arg.is<Size>() || arg.get<Size>().is_known()) return wrapped_number(arg);
    return wrapped_number(Arg(Size(reader.size(arg.get<Size>()))));
  }
  if (arg.is<Size>()) {
    const int64_t value = reader.size(arg.get<Size>());
    return kind == c10::TypeKind::FloatType ? c10::IValue(static_cast<double>(value))
                                            : c10::IValue(value);
  }
  if (arg.is<double>()) return arg.get<double>();
  if (arg.is<bool>()) return arg.get<bool>();
  if (arg.is<std::complex<double>>()) {
    const auto value = arg.get<std::complex<double>>();
    return c10::complex<double>(value.real(), value.imag());
  }
  if (arg.is<std::string>()) return arg.get<std::string>();
  if (arg.is<DType>()) return static_cast<int64_t>(to_scalar_type(arg.get<DType>()));
  if (arg.is<Device>()) return to_c10(arg.get<Device>());
  if (arg.is<Layout>()) return static_cast<int64_t>(arg.get<Layout>().value);
  return static_cast<int64_t>(arg.get<MemoryFormat>().value);
}

}  // namespace smelt
