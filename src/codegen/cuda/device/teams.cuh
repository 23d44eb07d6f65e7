// Reductions, by the threads that share an outer point: a team. In a kernel over rows its threads
// stand next to each other: a part of a warp, a warp, or a block. In one over columns they stand
// kWidth apart in the block.
#pragma once

template <class T>
struct Sum {
  typedef T Value;
  static SMELT_DEVICE T none() { return T(0); }
  static SMELT_DEVICE T both(T a, T b) { return add(a, b); }
};
template <class T>
struct Product {
  typedef T Value;
  static SMELT_DEVICE T none() { return T(1); }
  static SMELT_DEVICE T both(T a, T b) { return mul(a, b); }
};
template <class T>
struct Min {
  typedef T Value;
  static SMELT_DEVICE T none() { return Limits<T>::highest(); }
  static SMELT_DEVICE T both(T a, T b) { return min_of(a, b); }
};
template <class T>
struct Max {
  typedef T Value;
  static SMELT_DEVICE T none() { return Limits<T>::lowest(); }
  static SMELT_DEVICE T both(T a, T b) { return max_of(a, b); }
};
template <>
SMELT_DEVICE f32 Min<f32>::both(f32 a, f32 b) {
  f32 result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
template <>
SMELT_DEVICE f32 Max<f32>::both(f32 a, f32 b) {
  f32 result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
template <class T>
struct Any {
  typedef bool Value;
  static SMELT_DEVICE bool none() { return false; }
  static SMELT_DEVICE bool both(bool a, bool b) { return a || b; }
};
template <class T>
struct All {
  typedef bool Value;
  static SMELT_DEVICE bool none() { return true; }
  static SMELT_DEVICE bool both(bool a, bool b) { return a && b; }
};

// A value and where it is. Nowhere is behind all places; of equals the first counts, and NaN is
// before everything.
template <class T>
struct Placed {
  T value;
  Index place;
};
template <class T>
SMELT_DEVICE bool is_nan(T x) {
  return x != x;
}
template <class T, bool kLeast>
struct Extreme {
  typedef Placed<T> Value;
  static SMELT_DEVICE Value none() {
    Value value = {kLeast ? Limits<T>::highest() : Limits<T>::lowest(), Limits<Index>::highest()};
    return value;
  }
  static SMELT_DEVICE Value both(Value a, Value b) {
    const bool better =
        (kLeast ? b.value < a.value : a.value < b.value) || (is_nan(b.value) && !is_nan(a.value));
    const bool same = a.value == b.value || (is_nan(a.value) && is_nan(b.value));
    return better || (same && b.place < a.place) ? b : a;
  }
  // One more value, from behind all that came before.
  static SMELT_DEVICE Value next(Value before, T value, Index place) {
    const bool better = kLeast ? !(value >= before.value) : !(value <= before.value);
    Value one = {value, place};
    return better && !is_nan(before.value) ? one : before;
  }
};
template <class T>
struct ArgMin : Extreme<T, true> {};
template <class T>
struct ArgMax : Extreme<T, false> {};
// The position that was found: of nothing, or where all values are the worst there is, the first.
template <class T>
SMELT_DEVICE i64 place_of(Placed<T> found) {
  return found.place == Limits<Index>::highest() ? 0 : found.place;
}

// --- across threads ---

template <class T>
SMELT_DEVICE T shuffle_xor(unsigned mask, T value, int lanes, int width) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
SMELT_DEVICE bool shuffle_xor(unsigned mask, bool value, int lanes, int width) {
  return __shfl_xor_sync(mask, static_cast<int>(value), lanes, width) != 0;
}
#define SMELT_SMALL(T)                                                                   \
  SMELT_DEVICE T shuffle_xor(unsigned mask, T value, int lanes, int width) {             \
    return static_cast<T>(__shfl_xor_sync(mask, static_cast<int>(value), lanes, width)); \
  }
SMELT_SMALL(i8)
SMELT_SMALL(u8)
SMELT_SMALL(i16)
#undef SMELT_SMALL
template <class T>
SMELT_DEVICE Placed<T> shuffle_xor(unsigned mask, Placed<T> value, int lanes, int width) {
  Placed<T> result = {shuffle_xor(mask, value.value, lanes, width),
                      shuffle_xor(mask, value.place, lanes, width)};
  return result;
}

template <class T>
SMELT_DEVICE T shuffle_from(unsigned mask, T value, int lane, int width) {
  return __shfl_sync(mask, value, lane, width);
}
#define SMELT_SMALL(T)                                                              \
  SMELT_DEVICE T shuffle_from(unsigned mask, T value, int lane, int width) {        \
    return static_cast<T>(__shfl_sync(mask, static_cast<int>(value), lane, width)); \
  }
SMELT_SMALL(bool)
SMELT_SMALL(i8)
SMELT_SMALL(u8)
SMELT_SMALL(i16)
#undef SMELT_SMALL

// Over kTeam lanes of a warp, a power of two; all of them get the result.
template <class Op, int kTeam>
SMELT_DEVICE typename Op::Value reduce_lanes(typename Op::Value value, unsigned mask) {
  SMELT_UNROLL for (int lanes = kTeam / 2; lanes > 0; lanes /= 2) value =
      Op::both(value, shuffle_xor(mask, value, lanes, kTeam));
  return value;
}

// The lanes of a warp that are of the thread's team.
template <int kTeam>
SMELT_DEVICE unsigned team_mask() {
  if (kTeam >= 32) return 0xffffffffu;
  return ((1u << (kTeam & 31)) - 1) << (threadIdx.x % 32 / kTeam * kTeam);
}

// Over a team of a kernel over rows. `space`: shared memory of the block for one value per warp,
// not used by anything else.
template <class Op, int kTeam>
SMELT_DEVICE typename Op::Value reduce_row(typename Op::Value value, typename Op::Value* space) {
  if (kTeam == 1) return value;
  value = reduce_lanes<Op, (kTeam < 32 ? kTeam : 32)>(value, team_mask<kTeam>());
  if (kTeam <= 32) return value;
  const int kWarps = (kTeam + 31) / 32;
  if (threadIdx.x % 32 == 0) space[threadIdx.x / 32] = value;
  __syncthreads();
  value = Op::none();
  if (threadIdx.x % 32 < kWarps) value = space[threadIdx.x % 32];
  return reduce_lanes<Op, 32>(value, 0xffffffffu);
}

template <class T>
SMELT_DEVICE T shuffle_up(unsigned mask, T value, int lanes, int width) {
  return __shfl_up_sync(mask, value, lanes, width);
}
#define SMELT_SMALL(T)                                                                  \
  SMELT_DEVICE T shuffle_up(unsigned mask, T value, int lanes, int width) {             \
    return static_cast<T>(__shfl_up_sync(mask, static_cast<int>(value), lanes, width)); \
  }
SMELT_SMALL(bool)
SMELT_SMALL(i8)
SMELT_SMALL(u8)
SMELT_SMALL(i16)
#undef SMELT_SMALL

// The values of a team up to the thread's own, combined in the order of the threads, behind
// `before`, which then holds all of them. `space`: as of reduce_row.
template <class Op, int kTeam>
SMELT_DEVICE typename Op::Value scan_row(typename Op::Value value, typename Op::Value& before,
                                         typename Op::Value* space) {
  const int kLanes = kTeam < 32 ? kTeam : 32, kWarps = (kTeam + 31) / 32;
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / 32;
  const unsigned mask = team_mask<kTeam>();
  SMELT_UNROLL for (int lanes = 1; lanes < kLanes; lanes *= 2) {
    const typename Op::Value other = shuffle_up(mask, value, lanes, kLanes);
    if (lane >= lanes) value = Op::both(other, value);
  }
  typename Op::Value all = before;
  if (kTeam <= 32) {
    value = Op::both(before, value);
    before = shuffle_from(mask, value, kLanes - 1, kLanes);
    return value;
  }
  __syncthreads();  // the space may still be read from the turn before
  if (lane == 31) space[warp] = value;
  __syncthreads();
  for (int other = 0; other < kWarps; ++other) {
    if (other == warp) value = Op::both(all, value);
    all = Op::both(all, space[other]);
  }
  before = all;
  return value;
}

// Over a team of a kernel over columns, kWidth threads apart. `space`: of kTeam * kWidth values.
template <class Op, int kTeam, int kWidth>
SMELT_DEVICE typename Op::Value reduce_column(typename Op::Value value, typename Op::Value* space) {
  if (kTeam == 1) return value;
  __syncthreads();
  space[threadIdx.x] = value;
  __syncthreads();
  SMELT_UNROLL for (int half = kTeam / 2; half > 0; half /= 2) {
    if (threadIdx.x < half * kWidth)
      space[threadIdx.x] = Op::both(space[threadIdx.x], space[threadIdx.x + half * kWidth]);
    __syncthreads();
  }
  return space[threadIdx.x % kWidth];
}
