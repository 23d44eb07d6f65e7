// Where a captured CUDA graph holds numbers of the program: learning rates, corrections that depend
// on the count of steps. The captures are made with other numbers each; what follows one of them,
// as kernels are given numbers, is changed when the number changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/number.h"
#include "cuda_graphs/address_words.h"

namespace smelt::cuda_graphs {

// How a parameter shows a number.
enum class NumberForm : uint8_t { f64, i64, f32, minus_f32, inverse_f32 };

struct NumberPlace {
  int32_t node = 0;
  int32_t half = 0;  // of the words: 4 bytes each; a form of 8 bytes takes two
  int32_t number = 0;
  NumberForm form = NumberForm::f32;
  friend bool operator==(const NumberPlace&, const NumberPlace&) = default;
};

struct NumberPlaces {
  Decision possible = Decision::allow();
  std::vector<NumberPlace> all;  // by node
};

// `numbers`: by capture. Words among `taken` are addresses.
NumberPlaces find_number_places(std::span<const Capture> captures,
                                std::span<const std::vector<Number>> numbers,
                                std::span<const Place> taken);

// What to capture with in the place of a number: of its type, and of no meaning to any kernel.
Number invented_number(size_t index, size_t capture, const Number& like);

bool is_wide(NumberForm form);  // it takes 8 bytes
uint64_t bits_of(NumberForm form, const Number& number);

}  // namespace smelt::cuda_graphs
