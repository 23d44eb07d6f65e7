#include "codegen/cpu/vector_math/calls.h"

#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <vector>

namespace smelt::vector_math {

namespace {

unsigned lanes_of(llvm::Type* type) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector ? vector->getNumElements() : 0;  // 0: a scalar
}

llvm::FunctionType* function_type(llvm::Type* type, size_t args) {
  return llvm::FunctionType::get(type, std::vector<llvm::Type*>(args, type), false);
}

void has_no_effects(llvm::Function& function) {
  function.setDoesNotAccessMemory();
  function.setDoesNotThrow();
  function.setWillReturn();
}

llvm::FunctionCallee library_function(llvm::Module& module, const std::string& name,
                                      llvm::FunctionType* type) {
  llvm::FunctionCallee callee = module.getOrInsertFunction(name, type);
  if (auto* function = llvm::dyn_cast<llvm::Function>(callee.getCallee()))
    has_no_effects(*function);
  return callee;
}

// Compiled for the same processor as the caller, where functions say for which.
llvm::Function* make_function(llvm::Function& caller, const std::string& name,
                              llvm::FunctionType* type) {
  auto* function =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, *caller.getParent());
  for (const char* attribute : {"target-cpu", "target-features", "tune-cpu", "frame-pointer",
                                "prefer-vector-width", "min-legal-vector-width"}) {
    if (caller.hasFnAttribute(attribute)) {
      function->addFnAttr(caller.getFnAttribute(attribute));
    }
  }
  has_no_effects(*function);
  return function;
}

Num call_lanes(const std::string& name, std::span<const Num> args) {
  llvm::IRBuilder<>& ir = *args[0].ir;
  llvm::Type* type = args[0].value->getType();
  llvm::FunctionCallee callee =
      library_function(*ir.GetInsertBlock()->getModule(), args[0].wide() ? name : name + "f",
                       function_type(type->getScalarType(), args.size()));
  const unsigned lanes = lanes_of(type);
  std::vector<llvm::Value*> operands(args.size());
  if (lanes == 0) {
    for (size_t i = 0; i < args.size(); ++i) operands[i] = args[i].value;
    return {&ir, ir.CreateCall(callee, operands)};
  }
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    for (size_t i = 0; i < args.size(); ++i) {
      operands[i] = ir.CreateExtractElement(args[i].value, uint64_t{lane});
    }
    result = ir.CreateInsertElement(result, ir.CreateCall(callee, operands), uint64_t{lane});
  }
  return {&ir, result};
}

}  // namespace

Num call_guarded(const std::string& name, std::initializer_list<Num> args,
                 const std::function<Guarded(std::span<const Num>)>& body) {
  llvm::IRBuilder<>& ir = *args.begin()->ir;
  llvm::Type* type = args.begin()->value->getType();
  llvm::Function& caller = *ir.GetInsertBlock()->getParent();
  const unsigned lanes = lanes_of(type);
  const std::string full = "smelt." + name + (args.begin()->wide() ? ".f64" : ".f32") +
                           (lanes ? "x" + std::to_string(lanes) : "");
  llvm::Function* function = caller.getParent()->getFunction(full);
  if (!function) {
    function = make_function(caller, full, function_type(type, args.size()));
    llvm::LLVMContext& context = caller.getContext();
    auto* entry = llvm::BasicBlock::Create(context, "entry", function);
    auto* common = llvm::BasicBlock::Create(context, "common", function);
    auto* rare = llvm::BasicBlock::Create(context, "rare", function);
    llvm::IRBuilder<> inside(entry);
    std::vector<Num> params;
    for (llvm::Argument& argument : function->args()) params.push_back({&inside, &argument});
    const Guarded guarded = body(params);
    llvm::Value* all =
        lanes ? inside.CreateAndReduce(guarded.covered.value) : guarded.covered.value;
    inside.CreateCondBr(all, common, rare, llvm::MDBuilder(context).createBranchWeights(1000, 1));
    inside.SetInsertPoint(common);
    inside.CreateRet(guarded.fast.value);
    inside.SetInsertPoint(rare);
    inside.CreateRet(select(guarded.covered, guarded.fast, call_lanes(name, params)).value);
  }
  std::vector<llvm::Value*> operands;
  for (const Num& arg : args) operands.push_back(arg.value);
  return {&ir, ir.CreateCall(function, operands)};
}

}  // namespace smelt::vector_math
