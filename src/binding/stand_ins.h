// Stand-ins for numbers (aten/stand_ins.h) as Python objects: torch.SymInt and
// torch.SymFloat over a node that knows the number.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>

#include "aten/stand_ins.h"
#include "capture/bytecode/nodes/tensors.h"

namespace smelt {

class PythonStandIns final : public StandIns {
 public:
  // A new reference. The number is an exact int of at most 64 bits, or an exact float.
  PyObject* make(PyObject* number, ScalarId id, bool is_size);
  // What happened since the first one was made.
  bytecode::StandInUse end();

  std::optional<Found> find(const c10::SymNodeImpl& node) override;
  std::optional<Found> find(const at::Tensor& number) override;
  void look_at(ScalarId id) override { use_->looked_at.push_back(id); }
  void take_as_size(ScalarId id) override { use_->sizes.push_back(id); }
  void reach() override { ++use_->ops; }

 private:
  // Shared with the stand-ins, of which a traceback may keep one.
  std::shared_ptr<bytecode::StandInUse> use_ = std::make_shared<bytecode::StandInUse>();
};

// The int or float as an op takes it.
c10::Scalar to_scalar(PyObject* number);

void bind_stand_ins(pybind11::module_& m);

}  // namespace smelt
