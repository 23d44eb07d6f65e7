// Which library computes Fourier transforms on the CPU: their results lie differently in memory.
#pragma once

namespace smelt {

// Set before the first rule is asked.
inline bool fft_by_mkl = false;

}  // namespace smelt
