// What the interpreter asks about tensors (capture/bytecode/nodes/tensors.h), answered with
// PyTorch.
#include "binding/tensors.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <unordered_set>

#include "aten/number_node.h"
#include "aten/transforms.h"
#include "base/error.h"
#include "binding/binding.h"
#include "binding/pass_hooks.h"
#include "binding/python_call.h"
#include "binding/python_errors.h"
#include "binding/stand_ins.h"
#include "bridge/choose_program.h"
#include "bridge/run_outcome.h"
#include "bridge/size_shadow.h"
#include "bridge/traced_program.h"
#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/nodes/number_ops.h"
#include "capture/log/op_log.h"
#include "log/contents.h"
#include "log/own_ops.h"
#include "log/stages.h"

namespace py = pybind11;

namespace smelt {

using namespace bytecode;
namespace {

// With fewer ops it is not worth the time to let go of the GIL and to get it back.
constexpr size_t kFewOps = 4;

BreakReason to_reason(OpTrouble::Kind kind) {
  switch (kind) {
    case OpTrouble::Kind::foreign_tensor: return BreakReason::foreign_tensor;
    case OpTrouble::Kind::data_dependent: return BreakReason::data_dependent;
    case OpTrouble::Kind::subclass: return BreakReason::subclass;
    case OpTrouble::Kind::transform: return BreakReason::transform;
    case OpTrouble::Kind::autograd: return BreakReason::autograd;
    case OpTrouble::Kind::memory: return BreakReason::mutation;
    case OpTrouble::Kind::argument: return BreakReason::c_function;
    case OpTrouble::Kind::internal: return BreakReason::internal;
  }
  return BreakReason::internal;
}

// Runs `body`; an exception becomes the Python error that PyTorch makes of it. False: there was
// one.
template <typename Body>
bool as_pytorch(const Body& body) {
  try {
    torch::PyWarningHandler warnings;
    try {
      body();
      return true;
    } catch (...) {
      warnings.set_in_exception();
      throw;
    }
  } catch (const std::exception&) {
    set_python_error();
  }
  return false;
}

RunOutcome run_program(const TracedProgram& program, std::vector<at::Tensor> inputs,
                       std::span<const c10::Scalar> scalars, OnFailure on_failure) {
  if (program.ops() <= kFewOps && !program.log().has_backward())
    return program.attempt(std::move(inputs), scalars, on_failure);
  py::gil_scoped_release nogil;
  return program.attempt(std::move(inputs), scalars, on_failure);
}

PyObject* wrap(at::Tensor tensor) {
  if (!tensor.defined()) return Py_NewRef(Py_None);
  PyObject* object = THPVariable_Wrap(std::move(tensor));
  if (!object) throw python_error();
  return object;
}

// Python's number behind a 0-dim tensor.
PyObject* to_python(const at::Tensor& number) {
  switch (number.scalar_type()) {
    case c10::kBool: return PyBool_FromLong(number.item<bool>());
    case c10::kLong: return PyLong_FromLongLong(number.item<int64_t>());
    default: return PyFloat_FromDouble(number.item<double>());
  }
}

class NativeProgram final : public TensorProgram {
 public:
  NativeProgram(std::shared_ptr<const TracedProgram> program, const ProgramRequest& request)
      : program_(std::move(program)),
        inputs_(request.inputs.size()),
        scalars_(request.scalars.size()),
        tensors_(request.outputs.size()) {}

  bool run(PyObject* const* inputs, PyObject** outputs, Failure* failure) const override {
    size_t made = 0;
    RunOutcome outcome;
    const bool done = as_pytorch([&] {
      std::vector<at::Tensor> tensors;
      tensors.reserve(inputs_);
      for (size_t i = 0; i < inputs_; ++i) tensors.push_back(THPVariable_Unpack(inputs[i]));
      std::vector<c10::Scalar> scalars;
      for (size_t i = 0; i < scalars_; ++i) scalars.push_back(to_scalar(inputs[inputs_ + i]));
      outcome = run_program(*program_, std::move(tensors), scalars, OnFailure::leave);
      if (outcome.kind == RunOutcome::Kind::failed) std::rethrow_exception(outcome.error);
      for (at::Tensor& result : outcome.outputs) {
        outputs[made] = made < tensors_ ? wrap(std::move(result)) : to_python(result);
        ++made;
      }
    });
    if (!done)
      for (size_t i = 0; i < made; ++i) Py_CLEAR(outputs[i]);
    if (!done) describe(outcome, outputs, failure);
    return done && outcome.is_done();
  }
  bool fails_cleanly() const override { return program_->fails_cleanly(); }
  bool is_watched() const override { return program_->is_watched(); }
  size_t ops() const override { return program_->ops(); }
  bool is_left_to_autograd() const override { return program_->is_left_to_autograd(); }
  // Another thread that compiles a part of it may need the GIL to get on.
  std::string str() const override {
    const py::gil_scoped_release nogil;
    return program_->str();
  }
  std::vector<Guard> size_guards() const override { return program_->size_guards(); }
  std::vector<std::string> own_sizes() const override {
    const py::gil_scoped_release nogil;
    return program_->own_sizes();
  }

 private:
  void describe(RunOutcome& outcome, PyObject** outputs, Failure* failure) const {
    failure->clean = !outcome.changed && !outcome.is_done();
    failure->position = outcome.is_done() ? SIZE_MAX : outcome.position;
    if (outcome.is_done()) return;  // it was its results for which there was no room
    const SavedError error;
    for (size_t i = 0; i < std::min(tensors_, outcome.outputs.size()); ++i)
      if (outcome.outputs[i].defined()) {
        outputs[i] = THPVariable_Wrap(std::move(outcome.outputs[i]));
        if (outputs[i] == nullptr) PyErr_Clear();
      }
  }

  std::shared_ptr<const TracedProgram> program_;
  size_t inputs_, scalars_, tensors_;
};

// What a back end written in Python is given: run(*inputs), text(), and itself callable.
struct CapturedGraph {
  std::shared_ptr<const TracedProgram> program;
  size_t inputs = 0;

  py::list run(const py::args& arguments) const {
    if (arguments.size() != inputs)
      throw Error("the graph takes " + std::to_string(inputs) + " tensors, not " +
                  std::to_string(arguments.size()));
    std::vector<at::Tensor> tensors;
    for (const py::handle& argument : arguments) {
      if (!is_tensor_object(argument.ptr())) throw Error("the graph takes tensors only");
      tensors.push_back(THPVariable_Unpack(argument.ptr()));
    }
    py::list results;
    for (at::Tensor& result :
         run_program(*program, std::move(tensors), {}, OnFailure::restore).take())
      results.append(py::reinterpret_steal<py::object>(wrap(std::move(result))));
    return results;
  }
};

// What a back end written in Python made of the graph.
class PythonProgram final : public TensorProgram {
 public:
  PythonProgram(std::shared_ptr<const TracedProgram> program, Object callable, size_t inputs,
                size_t outputs)
      : program_(std::move(program)),
        callable_(std::move(callable)),
        inputs_(inputs),
        outputs_(outputs) {}

  bool run(PyObject* const* inputs, PyObject** outputs, Failure* failure) const override {
    failure->clean = fails_cleanly();
    const Object result =
        Object::steal(PyObject_Vectorcall(callable_.get(), inputs, inputs_, nullptr));
    if (!result) return false;
    const Object list =
        Object::steal(PySequence_Fast(result.get(), "a back end must return a list of tensors"));
    if (!list) return false;
    if (static_cast<size_t>(PySequence_Fast_GET_SIZE(list.get())) != outputs_) {
      PyErr_Format(PyExc_ValueError, "the back end returned %zd results; the graph has %zu",
                   PySequence_Fast_GET_SIZE(list.get()), outputs_);
      return false;
    }
    PyObject** items = PySequence_Fast_ITEMS(list.get());
    for (size_t i = 0; i < outputs_; ++i) {
      if (items[i] == Py_None || is_tensor_object(items[i])) continue;
      PyErr_Format(PyExc_TypeError, "the back end returned a %s in the place of a tensor",
                   Py_TYPE(items[i])->tp_name);
      return false;
    }
    for (size_t i = 0; i < outputs_; ++i) outputs[i] = Py_NewRef(items[i]);
    return true;
  }
  bool fails_cleanly() const override { return program_->log().fails_cleanly(); }
  bool is_watched() const override { return program_->is_watched(); }
  size_t ops() const override { return program_->ops(); }
  bool is_left_to_autograd() const override { return program_->is_left_to_autograd(); }
  std::string str() const override { return program_->str(); }

 private:
  std::shared_ptr<const TracedProgram> program_;
  Object callable_;
  size_t inputs_, outputs_;
};

WantedProgram wanted_program(const ProgramRequest& request) {
  if (request.backend_callable) return WantedProgram::graph;
  switch (request.settings.engine) {
    case Engine::native: return WantedProgram::fastest;
    case Engine::interpret: return WantedProgram::interpreted;
    case Engine::eager:
    case Engine::custom: break;  // its function is gone
  }
  return WantedProgram::op_by_op;
}

// torch.set_default_dtype for a while.
class DefaultDtype {
 public:
  explicit DefaultDtype(caffe2::TypeMeta dtype) : before_(c10::get_default_dtype()) {
    if (dtype != before_) c10::set_default_dtype(dtype);
  }
  ~DefaultDtype() {
    if (c10::get_default_dtype() != before_) c10::set_default_dtype(before_);
  }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  const caffe2::TypeMeta before_;
};

class Log final : public TensorLog {
 public:
  void resume() override { log_.resume(); }
  void pause() override { log_.pause(); }

  LogValue add_input(PyObject* tensor) override {
    ++inputs_;
    return log_.add_input(THPVariable_Unpack(tensor));
  }

  // Objects that ops made are plain tensors; anything else was made of one by other means.
  LogValue value_of(PyObject* object) const override {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    const LogValue value = log_.find(tensor);
    if (value < 0 || is_input(value)) return value;
    if (!is_plain(object) && !parameters_.contains(value)) {
      log_.give_up(OpTrouble::Kind::subclass, Py_TYPE(object)->tp_name);
      return -1;
    }
    return log_.check_state(value, tensor) ? value : -1;
  }

  std::optional<int64_t> version_rise(PyObject* object) const override {
    const LogValue value = log_.find(THPVariable_Unpack(object));
    if (value < 0) return std::nullopt;
    const LoggedValue& known = plain().value(value);
    if (known.kind != LoggedValue::Kind::input && !known.apart &&
        log_.is_input_memory(known.memory))
      return std::nullopt;
    const RealTensor& real = log_.real_tensors()[value];
    return static_cast<int64_t>(real.version) - real.first_version;
  }

  void free_contents(PyObject* object) override {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (tensor.use_count() > 1 || !tensor.has_storage() || tensor.layout() != c10::kStrided) return;
    const c10::Storage& storage = tensor.storage();
    if (storage.use_count() > 1 || !storage) return;
    // The size stays, for whoever asks what an input of this kind looks like.
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  }

  bool is_input(LogValue value) const override {
    return plain().value(value).kind == LoggedValue::Kind::input;
  }
  bool is_dynamic(LogValue value) const override { return plain().value(value).dynamic; }
  bool is_single(LogValue value) const override { return smelt::is_single(plain(), value); }
  bool is_whole(LogValue value) const override { return is_steady(plain(), value); }
  bool is_fixed(LogValue value) const override { return smelt::is_fixed(plain(), value); }
  bool is_gamble(LogValue value) const override { return smelt::is_gamble(plain(), value); }
  bool is_gambled_number(int32_t number) const override {
    const LogValue source = source_of_number(plain(), number);
    return source >= 0 && is_gamble(source);
  }
  bool is_in_op() const override { return log_.is_in_op(); }
  bool has_saved_hooks() const override {
    return at::GradMode::is_enabled() && at::SavedTensorDefaultHooks::get_hooks().has_value();
  }
  size_t position() const override { return plain().calls.size(); }
  void rewind(size_t position) override { log_.rewind(position); }

  std::optional<Call> begin_call(PyObject* callee, std::span<PyObject* const> arguments,
                                 PyObject* names) override {
    std::vector<at::Tensor> tensors;
    for (PyObject* argument : arguments) collect_tensors(argument, tensors);
    std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
    std::optional<OpenCall> call =
        log_.begin_call(make_python_call(callee, arguments, names), tensors);
    if (!call) return std::nullopt;
    calls_.emplace_back(std::move(*call), position());
    return calls_.size() - 1;
  }
  bool end_call(Call call, PyObject* result) override {
    auto [open, position] = take_begun(call);
    return log_.end_call(std::move(open), position, tensors_in(result));
  }

  bool end_function(Call call, std::span<PyObject* const> arguments, PyObject* result) override {
    auto [open, position] = take_begun(call);
    return log_.end_function(std::move(open), position, tensors_in(result),
                             called_function(arguments, result));
  }
  bool is_function(PyObject* context) const override {
    return log_.function_of(node_of(context)).has_value();
  }
  void meet_saved(PyObject* context, PyObject* saved) override {
    if (const auto call = log_.function_of(node_of(context)))
      log_.meet_outputs(*call, tensors_in(saved));
  }

  bool has_effects(size_t position) const override {
    const size_t failed = log_.failed_effect();
    if (failed != SIZE_MAX && failed >= position) return true;
    return std::any_of(plain().calls.begin() + static_cast<ptrdiff_t>(position),
                       plain().calls.end(),
                       [](const LoggedCall& call) { return call.has_effects; });
  }
  void begin_recomputed() override { log_.begin_recomputed(); }
  void end_recomputed(bool keeps_random_state) override { log_.end_recomputed(keeps_random_state); }

  void keep_numbers() override { log_.keep_numbers(true); }
  void set_guess(std::function<bool()> may_guess) override {
    log_.set_guess([may_guess = std::move(may_guess)] {
      const pybind11::gil_scoped_acquire gil;  // PyTorch computes without it
      return may_guess();
    });
  }
  void set_count(std::function<bool()> may_count) override {
    log_.set_count([may_count = std::move(may_count)] {
      const pybind11::gil_scoped_acquire gil;
      return may_count();
    });
  }
  void count_number(int32_t item) override { log_.count_number(item); }
  bool counts() const override { return smelt::counts(plain()); }
  bool has_number(int32_t item) const override {
    return std::ranges::find(plain().calls, item, &LoggedCall::number) != plain().calls.end();
  }
  std::vector<LateSize> late_sizes() const override {
    std::vector<LateSize> late;
    if (!shadow_) return late;
    for (const SizeShadow::LateSize& known : shadow_->late())
      late.push_back({known.size, shadow_->symbols().hint(known.size), known.number});
    return late;
  }
  bool is_steady_number(int32_t number) const override {
    const LogValue source = source_of_number(plain(), number);
    return source >= 0 && is_steady(plain(), source);
  }

  std::optional<int32_t> take_number(size_t position) override {
    const std::vector<LoggedCall>& calls = plain().calls;
    if (calls.size() != position + 1 || calls.back().number < 0) return std::nullopt;
    taken_numbers_ = log_.numbers();
    return calls.back().number;
  }

  void expect(ScalarId number, PyObject* seen, bool truth) override {
    log_.expect(number, to_scalar(seen), truth);
  }

  bool set_grad(PyObject* tensor, PyObject* grad) override {
    return log_.set_grad(THPVariable_Unpack(tensor),
                         grad == Py_None ? at::Tensor() : THPVariable_Unpack(grad));
  }

  bool begin_backward(PyObject* outputs, PyObject* seeds, PyObject* inputs, bool keep_graph,
                      bool create_graph) override {
    std::vector<at::Tensor> from, gradients, only;
    collect_tensors(outputs, from);
    collect_tensors(seeds, gradients);
    collect_tensors(inputs, only);
    called_ = {};
    backward_ = log_.begin_backward(from, gradients, only, keep_graph, create_graph);
    return backward_.has_value();
  }

  void end_backward() override {
    log_.end_backward(std::move(*backward_));
    backward_.reset();
  }

  bool begin_grad(PyObject* outputs, PyObject* seeds, PyObject* inputs, bool keep_graph,
                  bool create_graph, bool allow_unused) override {
    called_ = {};
    backward_ = log_.begin_grad(tensors_in(outputs), tensors_in(seeds), tensors_in(inputs),
                                keep_graph, create_graph, allow_unused);
    return backward_.has_value();
  }

  bool end_grad(PyObject* grads) override {
    const bool ended = log_.end_grad(std::move(*backward_), tensors_in(grads));
    backward_.reset();
    return ended;
  }

  void follow_pass(bool follows) override { log_.follow_pass(follows); }
  void fix_sizes() override { log_.fix_sizes(); }

  bool require_grad(PyObject* tensor, bool value) override {
    // One that is made: the trace sees to its class.
    if (!is_plain(tensor)) parameters_.insert(log_.find(THPVariable_Unpack(tensor)));
    return log_.require_grad(THPVariable_Unpack(tensor), value);
  }

  bool retain_grad(PyObject* tensor) override {
    return log_.retain_grad(THPVariable_Unpack(tensor));
  }

  std::vector<Object> retained(PyObject* outputs) const override {
    std::vector<Object> found;
    for (const at::Tensor& tensor : log_.retained(tensors_in(outputs)))
      found.push_back(Object::steal(THPVariable_Wrap(tensor)));
    return found;
  }

  bool is_check(LogValue value, bool truth) const override {
    return smelt::is_check(plain(), value, truth);
  }

  bool take_data(PyObject* tensor, PyObject* data) override {
    return log_.take_data(THPVariable_Unpack(tensor), THPVariable_Unpack(data));
  }

  void note_registration(PyObject* tensor) override {
    log_.note_registration(THPVariable_Unpack(tensor));
  }

  bool begin_hook(PyObject* function, PyObject* const* arguments) override {
    const auto called = called_.next(log_, function, arguments);
    if (!called) {
      log_.give_up(OpTrouble::Kind::autograd, "a hook of unknown origin");
      return false;
    }
    return log_.begin_hook(called->hook, called->grads);
  }

  bool end_hook(PyObject* result) override { return log_.end_hook(tensors_in(result)); }

  std::vector<LogValue> used_inputs() const override {
    std::vector<LogValue> inputs;
    std::vector<bool> seen(plain().values.size());
    for (const LoggedCall& call : plain().calls)
      each_argument(call, [&](LogValue value) {
        if (!is_input(value) || seen[value]) return;
        seen[value] = true;
        inputs.push_back(value);
      });
    return inputs;
  }

  std::vector<ScalarId> used_scalars() const override {
    std::vector<ScalarId> scalars;
    std::unordered_set<ScalarId> seen;
    const auto use = [&](const LoggedCall& call) {
      for (const TakenNumber& number : call.takes)
        if (seen.insert(number.id).second) scalars.push_back(number.id);
    };
    for (size_t i = 0; i < plain().calls.size(); ++i) {
      const RealCall& real = log_.real_calls()[i];
      use(plain().calls[i]);
      if (real.function) std::ranges::for_each(real.function->calls.plain, use);
      for (const LogHook& hook : real.hooks) std::ranges::for_each(hook.calls.plain, use);
    }
    return scalars;
  }

  Size add_size_symbol(int64_t hint) override { return shadow().add_symbol(hint); }
  void vary(LogValue input, const SymbolicDims& dims) override { shadow().vary(input, dims); }
  void set_size_locator(std::function<std::string()> where) override {
    shadow().set_locator(std::move(where));
  }
  bool follow_sizes(const std::function<std::optional<Size>(ScalarId)>& size_of,
                    std::string* why) override {
    const bool was_on = log_.is_on();
    log_.pause();
    const Decision decision = shadow().follow(log_, size_of);
    if (was_on) log_.resume();
    if (!decision) *why = decision.reason();
    return static_cast<bool>(decision);
  }
  std::optional<Sizes> sizes_of(LogValue value) const override {
    return shadow_->sizes_of(log_, value);
  }
  int64_t hint(const Size& size) const override { return shadow_->symbols().hint(size); }
  const std::vector<Guard>& size_guards() const override { return shadow_->symbols().guards(); }
  const SymbolTable& size_symbols() const override { return shadow_->symbols(); }

  PyObject* stand_in(PyObject* number, ScalarId id, bool is_size) override {
    // A mode written in Python would get to see it.
    if (at::impl::PythonTorchFunctionTLS::stack_len() > 0) return nullptr;
    if (smelt::is_under_transform()) return nullptr;  // its levels compute with numbers
    log_.set_stand_ins(&stand_ins_);
    return stand_ins_.make(number, id, is_size);
  }

  StandInUse end_stand_ins() override {
    log_.set_stand_ins(nullptr);
    return stand_ins_.end();
  }

  std::optional<LogTrouble> take_trouble(bool thorough) override {
    // Each op looks at its own arguments; all inputs are looked at now and then, and at the end.
    if (thorough || ++since_check_ > 16 * inputs_) {
      log_.check_inputs();
      since_check_ = 0;
    }
    if (log_.numbers() != taken_numbers_) {  // C code has read it
      const bool are_known = log_.expect_numbers(taken_numbers_);
      taken_numbers_ = log_.numbers();
      if (!are_known) log_.give_up(OpTrouble::Kind::data_dependent, "item(), by C code");
    }
    check_default_dtype();
    if (!log_.has_trouble()) return std::nullopt;
    const std::optional<OpTrouble> trouble = log_.take_trouble();
    const bool is_ops = trouble->detail.find("::") != std::string::npos;
    if (trouble->kind == OpTrouble::Kind::memory && is_ops)
      return LogTrouble{BreakReason::mutation, "a tensor's memory by " + trouble->detail};
    return LogTrouble{to_reason(trouble->kind), trouble->detail};
  }

  std::unique_ptr<TensorProgram> finish(const ProgramRequest& request) override {
    std::unique_ptr<TensorProgram> made;
    const DefaultDtype as_it_was(dtype_);  // the code behind the last op may have changed it
    as_pytorch([&] { made = make_program(request); });
    return made;
  }

 private:
  const CallLog& plain() const { return log_.plain(); }

  SizeShadow& shadow() {
    if (!shadow_) shadow_ = std::make_unique<SizeShadow>();
    return *shadow_;
  }

  static bool is_plain(PyObject* tensor) {
    return Py_TYPE(tensor) == reinterpret_cast<PyTypeObject*>(THPVariableClass);
  }

  // A run has the default dtype of the start, so that no op may depend on one that came later.
  void check_default_dtype() {
    const size_t count = position();
    if (c10::get_default_dtype() != dtype_)
      for (size_t i = std::min(checked_, count); i < count; ++i)
        if (depends_on_default_dtype(plain().calls[i], log_.real_calls()[i].op->handle.schema()))
          log_.give_up(OpTrouble::Kind::argument, "an op under another default dtype");
    checked_ = count;
  }

  bool depends_on_default_dtype(const LoggedCall& call, const c10::FunctionSchema& schema) const {
    if (own_ops::is_custom(call.op)) return true;
    const auto named = schema.argumentIndexWithName("dtype");
    if (named && !call.args[*named].is_none()) return false;
    const auto dtype_of = [&](LogValue value) {
      const std::optional<TensorType>& type = plain().value(value).type;
      return type ? std::optional(type->dtype) : std::nullopt;
    };
    const auto is_number = [&](LogValue value) {
      const at::Tensor& constant = log_.real_tensors()[value].constant;
      return constant.defined() && constant.unsafeGetTensorImpl()->is_wrapped_number();
    };
    const auto holds_floats = [&](LogValue value) {
      if (value < 0 || is_number(value)) return false;
      const std::optional<DType> dtype = dtype_of(value);
      return dtype && (is_floating(*dtype) || is_complex(*dtype));
    };
    bool takes = false, has_number = false;
    each_argument(call, [&](LogValue value) {
      takes = takes || holds_floats(value);
      const std::optional<DType> dtype = dtype_of(value);
      has_number = has_number || (!holds_floats(value) && dtype && is_floating(*dtype));
    });
    for (const Arg& arg : call.args)
      has_number = has_number || arg.is<double>() || arg.is<std::complex<double>>();
    const auto may_hold_floats = [&](LogValue value) {
      return value >= 0 && (!dtype_of(value) || holds_floats(value));
    };
    return !takes && (has_number || std::ranges::any_of(call.results, may_hold_floats));
  }

  static std::vector<at::Tensor> tensors_in(PyObject* object) {
    std::vector<at::Tensor> tensors;
    collect_tensors(object, tensors);
    return tensors;
  }

  std::pair<OpenCall, size_t> take_begun(Call call) {
    std::pair<OpenCall, size_t> begun = std::move(calls_[call]);
    calls_.resize(call);
    return begun;
  }

  std::unique_ptr<TensorProgram> make_program(const ProgramRequest& request) {
    std::shared_ptr<const TracedProgram> program;
    {
      const py::gil_scoped_release nogil;  // it may run the autograd engine
      log_.expect_sizes_but(request.numbers);
      const LogProgram::Interface interface{request.inputs,
                                            request.outputs,
                                            request.scalars,
                                            request.examples,
                                            request.numbers,
                                            request.wanted_numbers,
                                            request.sizes.any() ? &request.sizes : nullptr,
                                            [this](LogValue value) {
                                              return shadow_ ? shadow_->type_of(log_, value)
                                                             : std::nullopt;
                                            }};
      CompileOptions options = compile_options(request.settings, request.module_state);
      if (options.background &&
          (at::globalContext().deterministicAlgorithms() || request.backend_callable != nullptr))
        options.background = false;  // which kernels a call runs would depend on the clock
      program = choose_program(log_, interface, wanted_program(request), options);
    }
    if (!request.backend_callable)
      return std::make_unique<NativeProgram>(std::move(program), request);
    py::list examples;
    for (LogValue input : request.inputs) {
      const at::Tensor tensor = log_.tensor(input);
      if (!tensor.defined()) throw Error("an input of the graph is gone");
      examples.append(py::reinterpret_steal<py::object>(wrap(tensor)));
    }
    const py::object graph = py::cast(CapturedGraph{program, request.inputs.size()});
    const py::object callable = py::handle(request.backend_callable)(graph, examples);
    if (!PyCallable_Check(callable.ptr()))
      throw Error("the back end returned a " + std::string(Py_TYPE(callable.ptr())->tp_name) +
                  " instead of a function");
    return std::make_unique<PythonProgram>(std::move(program), Object::share(callable.ptr()),
                                           request.inputs.size(), request.outputs.size());
  }

  mutable OpLog log_;
  std::unique_ptr<SizeShadow> shadow_;  // if sizes vary
  const caffe2::TypeMeta dtype_ = c10::get_default_dtype();
  PythonStandIns stand_ins_;
  std::vector<std::pair<OpenCall, size_t>> calls_;  // begun, and where
  std::optional<OpenCall> backward_;                // begun
  CalledHooks called_;                              // by that pass
  int32_t taken_numbers_ = 0;
  size_t checked_ = 0;  // calls for check_default_dtype()
  size_t inputs_ = 0, since_check_ = 0;
  std::unordered_set<LogValue> parameters_;  // results that are objects of a class of their own
};

class TorchTensors final : public Tensors {
 public:
  bool is_tensor(PyObject* object) const override { return is_tensor_object(object); }
  std::optional<LogTrouble> refuse(PyObject* tensor) const override {
    return refuse_tensor(tensor);
  }
  std::optional<LogTrouble> refuse_state() const override { return refuse_ambient(); }
  bool is_wrapped(PyObject* tensor) const override {
    return is_tensor_object(tensor) && is_functorch_wrapper(THPVariable_Unpack(tensor));
  }
  bool passes_on_this_thread(PyObject* outputs) const override {
    std::vector<at::Tensor> all;
    collect_tensors(outputs, all);
    return std::ranges::all_of(all, [](const at::Tensor& one) { return one.is_cpu(); });
  }
  bool is_under_transform() const override { return smelt::is_under_transform(); }
  std::unique_ptr<TensorGuard> guard(PyObject* tensor,
                                     std::span<const int> varying) const override {
    return make_tensor_guard(tensor, varying);
  }
  int rank_of(PyObject* tensor) const override {
    return static_cast<int>(THPVariable_Unpack(tensor).dim());
  }
  int64_t size_of(PyObject* tensor, int dim) const override {
    return THPVariable_Unpack(tensor).size(dim);
  }
  std::unique_ptr<TensorLog> start_log() const override { return std::make_unique<Log>(); }
  bool backward_runs_python(PyObject* outputs) const override {
    return smelt::backward_runs_python(outputs);
  }
  std::optional<std::vector<PassHooks>> pass_hooks(PyObject* outputs) const override {
    return smelt::pass_hooks(outputs);
  }
  std::vector<Object> backward_leaves(PyObject* outputs, PyObject* inputs) const override {
    return smelt::backward_leaves(outputs, inputs);
  }
  Ambient ambient() const override { return read_ambient(); }
  std::string difference(const Ambient& was, const Ambient& is) const override {
    return ambient_difference(was, is);
  }
};

}  // namespace

void bind_tensors(py::module_& m) {
  py::class_<CapturedGraph>(m, "CapturedGraph")
      .def("run", &CapturedGraph::run)
      .def("__call__", &CapturedGraph::run)
      .def("text", [](const CapturedGraph& graph) { return graph.program->str(); })
      .def("__str__", [](const CapturedGraph& graph) { return graph.program->str(); })
      .def("__len__", [](const CapturedGraph& graph) { return graph.program->ops(); });
  bind_stand_ins(m);
  set_tensors(std::make_unique<TorchTensors>());
}

}  // namespace smelt
