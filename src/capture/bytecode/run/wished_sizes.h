// Which sizes of tensors vary, as a compiled function knows it: those that have been others in an
// earlier call, those that the user has marked, and with dynamic=True all of its arguments.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/settings.h"
#include "capture/bytecode/account/varying.h"

namespace smelt::bytecode {

// By path to the tensor.
using ChangedDims = std::map<std::string, std::set<int>>;

class WishedSizes final : public VaryingDims {
 public:
  WishedSizes(SizeUse use, const ChangedDims& changed) : use_(use), changed_(changed) {}

  std::vector<int> of(PyObject* tensor, const std::string& path, bool is_state) const override;
  std::optional<std::string> mark(PyObject* tensor, int dim) const override;

 private:
  const SizeUse use_;
  const ChangedDims& changed_;
};

}  // namespace smelt::bytecode
