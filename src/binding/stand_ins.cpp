#include "binding/stand_ins.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "aten/number_node.h"
#include "capture/bytecode/nodes/number_ops.h"

namespace py = pybind11;

namespace smelt {
namespace {

// What PyTorch's SymInt and SymFloat ask for. What is computed with it is a number beside it.
class NumberNode {
 public:
  NumberNode(std::shared_ptr<bytecode::StandInUse> use, ScalarId id, c10::Scalar value,
             bool is_size)
      : use_(std::move(use)), id_(id), value_(value), is_size_(is_size) {}

  StandIns::Found found() const { return {id_, value_, is_size_}; }
  bool is_float() const { return value_.isFloatingPoint(); }
  int64_t as_int() { return look().toLong(); }
  double as_float() { return look().toDouble(); }
  // A number beside it, which nobody traces.
  NumberNode beside(c10::Scalar value) const { return {use_, UINT32_MAX, value, false}; }
  // Somebody computes with it, or asks how it compares.
  Number compared() const {
    use_->compared.push_back(id_);
    return is_float() ? Number(value_.toDouble()) : Number(value_.toLong());
  }
  bool as_bool() { return is_float() ? as_float() != 0 : as_int() != 0; }
  std::string str() { return is_float() ? std::to_string(as_float()) : std::to_string(as_int()); }

 private:
  const c10::Scalar& look() {
    use_->looked_at.push_back(id_);
    return value_;
  }

  std::shared_ptr<bytecode::StandInUse> use_;
  ScalarId id_;
  c10::Scalar value_;
  bool is_size_;
};

// How a stand-in compares with another number. PyTorch may ask whether it is so whatever the numbers
// are, and goes on without an answer; whoever asks for the answer has looked at both.
class ComparisonNode {
 public:
  ComparisonNode(NumberNode a, NumberOp op, NumberNode b)
      : a_(std::move(a)), op_(op), b_(std::move(b)) {}

  bool answer() const {
    if (both_) return both_->first.answer() && both_->second.answer();
    return std::get<bool>(*compute(op_, a_.compared(), b_.compared()));
  }
  ComparisonNode with(const ComparisonNode& other) const {
    ComparisonNode made = *this;
    made.both_ = std::make_shared<std::pair<ComparisonNode, ComparisonNode>>(*this, other);
    return made;
  }

 private:
  NumberNode a_;
  NumberOp op_;
  NumberNode b_;
  std::shared_ptr<std::pair<ComparisonNode, ComparisonNode>> both_;  // it says that these hold
};

// Where the argument parser keeps the symbolic number of which it made a tensor.
constexpr const char* kBehindTensor = "_wrapped_number";

}  // namespace

c10::Scalar to_scalar(PyObject* number) { return to_scalar(bytecode::to_number(number)); }

PyObject* PythonStandIns::make(PyObject* number, ScalarId id, bool is_size) {
  const py::object node = py::cast(NumberNode(use_, id, to_scalar(number), is_size));
  const bool is_float = PyFloat_CheckExact(number);
  const py::handle type = is_float ? torch::get_symfloat_class() : torch::get_symint_class();
  // As its __init__ does, which is Python code, and the trace would follow it.
  auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
  auto made = py::reinterpret_steal<py::object>(cls->tp_new(cls, py::tuple().ptr(), nullptr));
  if (!made) throw py::error_already_set();
  made.attr("node") = node;
  return made.release().ptr();
}

bytecode::StandInUse PythonStandIns::end() { return std::exchange(*use_, {}); }

std::optional<StandIns::Found> PythonStandIns::find(const c10::SymNodeImpl& node) {
  const auto* behind = dynamic_cast<const torch::impl::PythonSymNodeImpl*>(&node);
  if (behind == nullptr) return std::nullopt;
  const py::gil_scoped_acquire gil;
  const py::handle object = const_cast<torch::impl::PythonSymNodeImpl*>(behind)->getPyObj();
  if (!py::isinstance<NumberNode>(object)) return std::nullopt;
  return object.cast<NumberNode&>().found();
}

std::optional<StandIns::Found> PythonStandIns::find(const at::Tensor& number) {
  const py::gil_scoped_acquire gil;
  const auto tensor = py::reinterpret_steal<py::object>(THPVariable_Wrap(number));
  const auto behind =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(tensor.ptr(), kBehindTensor));
  if (!behind) {
    PyErr_Clear();
    return std::nullopt;
  }
  const py::object node = behind.attr("node");
  if (!py::isinstance<NumberNode>(node)) return std::nullopt;
  return node.cast<NumberNode&>().found();
}

void bind_stand_ins(py::module_& m) {
  const auto where = [](auto result) {
    return [result](NumberNode& node, const py::args&) { return (node.*result)(); };
  };
  const auto compare = [](NumberOp op) {
    return [op](const NumberNode& a, const NumberNode& b) { return ComparisonNode(a, op, b); };
  };
  const auto arithmetic = [](NumberOp op) {
    return [op](const NumberNode& a, const NumberNode& b) {
      const std::optional<Number> made = compute(op, a.compared(), b.compared());
      if (!made) throw py::value_error("no such number");
      return a.beside(to_scalar(*made));
    };
  };
  py::class_<NumberNode>(m, "_NumberNode")
      .def("is_int", [](const NumberNode& node) { return !node.is_float(); })
      .def("is_float", &NumberNode::is_float)
      .def("is_bool", [](const NumberNode&) { return false; })
      .def("is_nested_int", [](const NumberNode&) { return false; })
      .def("is_symbolic", [](const NumberNode&) { return true; })
      .def("is_constant", [](const NumberNode&) { return false; })
      .def("has_hint", [](const NumberNode&) { return true; })
      .def("maybe_as_int", [](const NumberNode&) { return py::none(); })
      .def("guard_int", where(&NumberNode::as_int))
      .def("int_", where(&NumberNode::as_int))
      .def("guard_float", where(&NumberNode::as_float))
      .def("guard_bool", where(&NumberNode::as_bool))
      .def("bool_", where(&NumberNode::as_bool))
      .def("wrap_int", [](const NumberNode& node, int64_t value) { return node.beside(value); })
      .def("add", arithmetic(NumberOp::add))
      .def("sub", arithmetic(NumberOp::sub))
      .def("mul", arithmetic(NumberOp::mul))
      .def("mod", arithmetic(NumberOp::mod))
      .def("floordiv", arithmetic(NumberOp::floor_div))
      .def("int_floordiv", arithmetic(NumberOp::floor_div))
      .def("sym_min", arithmetic(NumberOp::min))
      .def("sym_max", arithmetic(NumberOp::max))
      .def("neg",
           [arithmetic](const NumberNode& node) {
             return arithmetic(NumberOp::sub)(node.beside(0), node);
           })
      .def("eq", compare(NumberOp::eq))
      .def("ne", compare(NumberOp::ne))
      .def("lt", compare(NumberOp::lt))
      .def("le", compare(NumberOp::le))
      .def("gt", compare(NumberOp::gt))
      .def("ge", compare(NumberOp::ge))
      .def("str", &NumberNode::str)
      .def("__str__", &NumberNode::str);
  const auto asked = [](const ComparisonNode& node, const py::args&) { return node.answer(); };
  py::class_<ComparisonNode>(m, "_ComparisonNode")
      .def("is_int", [](const ComparisonNode&) { return false; })
      .def("is_float", [](const ComparisonNode&) { return false; })
      .def("is_bool", [](const ComparisonNode&) { return true; })
      .def("is_nested_int", [](const ComparisonNode&) { return false; })
      .def("is_symbolic", [](const ComparisonNode&) { return true; })
      .def("is_constant", [](const ComparisonNode&) { return false; })
      .def("has_hint", [](const ComparisonNode&) { return true; })
      .def("statically_known_true", [](const ComparisonNode&, const py::args&) { return false; })
      .def("sym_and", &ComparisonNode::with)
      .def("guard_bool", asked)
      .def("guard_or_false", asked)
      .def("guard_or_true", asked)
      .def("guard_size_oblivious", asked)
      .def("expect_true", asked)
      .def("bool_", asked);
}

}  // namespace smelt
