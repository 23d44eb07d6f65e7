// Inputs of a program that autograd has made something of before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace smelt {

// What a backward pass comes to behind the inputs of a program.
struct ReachBehind {
  std::vector<bool> known;  // of the candidates: some other input was computed of it
  bool others = false;      // leaves that are none of these

  friend bool operator==(const ReachBehind&, const ReachBehind&) = default;
};
// `candidates`: which of the inputs are looked for.
ReachBehind reach_behind(std::span<const at::Tensor> inputs, const std::vector<size_t>& candidates);

// In which order eager's pass from these outputs comes to the inputs: places, by input. What the
// earliest op was given comes last.
std::vector<size_t> order_of_arrival(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs);

// Does Python code see when its gradient arrives?
bool is_hooked(const at::Tensor& tensor);

}  // namespace smelt
