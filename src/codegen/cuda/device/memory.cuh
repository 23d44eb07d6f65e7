// Access to memory: several elements at once where the kernel knows that they lie together, and
// indices that must be in range.
#pragma once

// An access of that many bytes, aligned to it.
template <int kBytes>
struct Word;
template <>
struct Word<1> {
  typedef unsigned char Type;
};
template <>
struct Word<2> {
  typedef unsigned short Type;
};
template <>
struct Word<4> {
  typedef unsigned Type;
};
template <>
struct Word<8> {
  typedef uint2 Type;
};
template <>
struct Word<16> {
  typedef uint4 Type;
};

// What is not read or written again soon should leave its place in the caches to others.
enum Reuse { again, once };

template <Reuse kReuse, class W>
SMELT_DEVICE W read_word(const W* from) {
  return kReuse == once ? __ldcs(from) : *from;
}
template <Reuse kReuse, class W>
SMELT_DEVICE void write_word(W* to, W word) {
  if (kReuse == once)
    __stcs(to, word);
  else
    *to = word;
}

template <class T, int kCount>
struct Words {
  static const int kBytes = kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16;
  static const int kEach = kBytes / sizeof(T);  // elements of a word
  typedef typename Word<kBytes>::Type W;
  union Both {
    W word;
    T elements[kEach];
    SMELT_DEVICE Both() {}
  };
};

// kCount elements from `from`, which is aligned to all of them (up to 16 bytes), unless this is the
// variant for buffers that are not.
template <Reuse kReuse, class T, int kCount>
SMELT_DEVICE void load_vector(T (&to)[kCount], const T* from) {
#ifdef SMELT_UNALIGNED
  SMELT_UNROLL for (int i = 0; i < kCount; ++i) to[i] = from[i];
#else
  typedef Words<T, kCount> Words;
  SMELT_UNROLL for (int part = 0; part < kCount / Words::kEach; ++part) {
    typename Words::Both both;
    both.word =
        read_word<kReuse>(reinterpret_cast<const typename Words::W*>(from + part * Words::kEach));
    SMELT_UNROLL for (int i = 0; i < Words::kEach; ++i) to[part * Words::kEach + i] =
        both.elements[i];
  }
#endif
}

template <Reuse kReuse, class T, int kCount>
SMELT_DEVICE void store_vector(T* to, const T (&from)[kCount]) {
#ifdef SMELT_UNALIGNED
  SMELT_UNROLL for (int i = 0; i < kCount; ++i) to[i] = from[i];
#else
  typedef Words<T, kCount> Words;
  SMELT_UNROLL for (int part = 0; part < kCount / Words::kEach; ++part) {
    typename Words::Both both;
    SMELT_UNROLL for (int i = 0; i < Words::kEach; ++i) both.elements[i] =
        from[part * Words::kEach + i];
    write_word<kReuse>(reinterpret_cast<typename Words::W*>(to + part * Words::kEach), both.word);
  }
#endif
}

// The same for the first `count` elements only; the others are 0, and not stored.
template <Reuse kReuse, class T, int kCount>
SMELT_DEVICE void load_vector(T (&to)[kCount], const T* from, int count) {
  if (count >= kCount) return load_vector<kReuse>(to, from);
  SMELT_UNROLL for (int i = 0; i < kCount; ++i) to[i] = i < count ? from[i] : T();
}
template <Reuse kReuse, class T, int kCount>
SMELT_DEVICE void store_vector(T* to, const T (&from)[kCount], int count) {
  if (count >= kCount) return store_vector<kReuse>(to, from);
  SMELT_UNROLL for (int i = 0; i < kCount; ++i) if (i < count) to[i] = from[i];
}

// Sums of several threads at one place.
SMELT_DEVICE void add_atomically(float* to, float value) { atomicAdd(to, value); }
SMELT_DEVICE void add_atomically(double* to, double value) { atomicAdd(to, value); }
SMELT_DEVICE void add_atomically(i32* to, i32 value) { atomicAdd(to, value); }
SMELT_DEVICE void add_atomically(i64* to, i64 value) {
  atomicAdd(reinterpret_cast<u64*>(to), static_cast<u64>(value));
}

// Ends the kernel with an error that the next call of the driver reports, as PyTorch's own kernels
// do. `used`: the thread's work counts.
extern "C" __device__ void __assertfail(const char* message, const char* file, unsigned line,
                                        const char* function, size_t width);
SMELT_DEVICE i64 check_index(i64 index, i64 bound, bool used, const char* kernel) {
  if (static_cast<u64>(index) < static_cast<u64>(bound)) return index;
  if (used) __assertfail("index out of bounds", kernel, 0, kernel, 1);
  return 0;
}
