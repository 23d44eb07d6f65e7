// Numbers of a kernel: half precision as its bits, conversions, and arithmetic as the loops mean it
// (loops/nodes.def): integers wrap around, min and max give NaN if one is NaN.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// Of elements and points; 64 bits for large tensors.
typedef SMELT_INDEX Index;
typedef unsigned SMELT_INDEX UIndex;

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

#define SMELT_DEVICE __device__ __forceinline__
#define SMELT_UNROLL _Pragma("unroll")

// --- conversions ---

template <class To, class From>
struct Cast {
  static SMELT_DEVICE To of(From x) { return static_cast<To>(x); }
};
template <class From>
struct Cast<bool, From> {
  static SMELT_DEVICE bool of(From x) { return x != 0; }
};
// Small integers by way of 64 bits, as PyTorch does it.
#define SMELT_NARROW(To, From)                                                         \
  template <>                                                                          \
  struct Cast<To, From> {                                                              \
    static SMELT_DEVICE To of(From x) { return static_cast<To>(static_cast<i64>(x)); } \
  };
SMELT_NARROW(u8, f32)
SMELT_NARROW(u8, f64)
SMELT_NARROW(i8, f32)
SMELT_NARROW(i8, f64)
SMELT_NARROW(i16, f32)
SMELT_NARROW(i16, f64)
#undef SMELT_NARROW

SMELT_DEVICE f32 to_f32(f16 x) {
  f32 result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
SMELT_DEVICE f32 to_f32(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
SMELT_DEVICE f16 to_f16(f32 x) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
SMELT_DEVICE bf16 to_bf16(f32 x) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

template <class To>
struct Cast<To, f16> {
  static SMELT_DEVICE To of(f16 x) { return Cast<To, f32>::of(to_f32(x)); }
};
template <class To>
struct Cast<To, bf16> {
  static SMELT_DEVICE To of(bf16 x) { return Cast<To, f32>::of(to_f32(x)); }
};
template <class From>
struct Cast<f16, From> {
  static SMELT_DEVICE f16 of(From x) { return to_f16(static_cast<f32>(x)); }
};
template <class From>
struct Cast<bf16, From> {
  static SMELT_DEVICE bf16 of(From x) { return to_bf16(static_cast<f32>(x)); }
};
#define SMELT_HALVES(To, From, expression)                   \
  template <>                                                \
  struct Cast<To, From> {                                    \
    static SMELT_DEVICE To of(From x) { return expression; } \
  };
SMELT_HALVES(f16, f16, x)
SMELT_HALVES(bf16, bf16, x)
SMELT_HALVES(f16, bf16, to_f16(to_f32(x)))
SMELT_HALVES(bf16, f16, to_bf16(to_f32(x)))
SMELT_HALVES(bool, f16, to_f32(x) != 0)
SMELT_HALVES(bool, bf16, to_f32(x) != 0)
#undef SMELT_HALVES

template <class To, class From>
SMELT_DEVICE To cast(From x) {
  return Cast<To, From>::of(x);
}

// --- arithmetic ---

template <class T>
SMELT_DEVICE T add(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
}
SMELT_DEVICE f32 add(f32 a, f32 b) { return a + b; }
SMELT_DEVICE f64 add(f64 a, f64 b) { return a + b; }
SMELT_DEVICE bool add(bool a, bool b) { return a || b; }

template <class T>
SMELT_DEVICE T sub(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
}

template <class T>
SMELT_DEVICE T mul(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}
SMELT_DEVICE f32 mul(f32 a, f32 b) { return a * b; }
SMELT_DEVICE f64 mul(f64 a, f64 b) { return a * b; }
SMELT_DEVICE bool mul(bool a, bool b) { return a && b; }

template <class T>
SMELT_DEVICE T neg(T a) {
  return static_cast<T>(0 - static_cast<u64>(a));
}

// By 0 it gives something, as PyTorch on a GPU.
template <class T>
SMELT_DEVICE T div(T a, T b) {
  return b == static_cast<T>(-1) && static_cast<T>(-1) < 0 ? neg(a) : static_cast<T>(a / b);
}
template <class T>
SMELT_DEVICE T mod(T a, T b) {
  return b == static_cast<T>(-1) && static_cast<T>(-1) < 0 ? T(0) : static_cast<T>(a % b);
}
SMELT_DEVICE f32 mod(f32 a, f32 b) { return fmodf(a, b); }
SMELT_DEVICE f64 mod(f64 a, f64 b) { return fmod(a, b); }

template <class T>
SMELT_DEVICE T min_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
SMELT_DEVICE T max_of(T a, T b) {
  return a < b ? b : a;
}
SMELT_DEVICE f32 min_of(f32 a, f32 b) { return b < a || b != b ? b : a; }
SMELT_DEVICE f64 min_of(f64 a, f64 b) { return b < a || b != b ? b : a; }
SMELT_DEVICE f32 max_of(f32 a, f32 b) { return a < b || b != b ? b : a; }
SMELT_DEVICE f64 max_of(f64 a, f64 b) { return a < b || b != b ? b : a; }
SMELT_DEVICE bool min_of(bool a, bool b) { return a && b; }
SMELT_DEVICE bool max_of(bool a, bool b) { return a || b; }

template <class T>
SMELT_DEVICE T abs_of(T a) {
  return a < 0 ? neg(a) : a;
}
SMELT_DEVICE bool abs_of(bool a) { return a; }

template <class T>
SMELT_DEVICE T shift_left(T a, T b) {
  return b < 0 || b >= static_cast<T>(8 * sizeof(T)) ? T(0)
                                                     : static_cast<T>(static_cast<u64>(a) << b);
}
template <class T>
SMELT_DEVICE T shift_right(T a, T b) {
  const int far = 8 * sizeof(T) - 1;
  return static_cast<T>(a >> (b < 0 || b > far ? far : static_cast<int>(b)));
}

SMELT_DEVICE f32 sigmoid(f32 x) { return 1.0f / (1.0f + expf(-x)); }
SMELT_DEVICE f64 sigmoid(f64 x) { return 1.0 / (1.0 + exp(-x)); }

template <class T>
SMELT_DEVICE T floor_div(T a, T b) {
  const T quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
template <class T>
SMELT_DEVICE T floor_mod(T a, T b) {
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// --- extremes ---

template <class T>
struct Limits;
#define SMELT_LIMITS(T, lowest_, highest_)               \
  template <>                                            \
  struct Limits<T> {                                     \
    static SMELT_DEVICE T lowest() { return lowest_; }   \
    static SMELT_DEVICE T highest() { return highest_; } \
  };
SMELT_LIMITS(f32, __int_as_float(0xff800000), __int_as_float(0x7f800000))
SMELT_LIMITS(f64, __longlong_as_double(0xfff0000000000000ll),
             __longlong_as_double(0x7ff0000000000000ll))
SMELT_LIMITS(i64, -9223372036854775807ll - 1, 9223372036854775807ll)
SMELT_LIMITS(i32, -2147483647 - 1, 2147483647)
SMELT_LIMITS(i16, -32768, 32767)
SMELT_LIMITS(i8, -128, 127)
SMELT_LIMITS(u8, 0, 255)
SMELT_LIMITS(bool, false, true)
#undef SMELT_LIMITS
