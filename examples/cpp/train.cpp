// A LibTorch program that records its training step and its inference, and runs both again from the
// graphs. Everything is compared with eager bit for bit; the exit status says whether all was
// equal.
#include <smelt/smelt.h>
#include <torch/torch.h>

#include <iostream>

using Tensors = std::vector<torch::Tensor>;

struct Net : torch::nn::Module {
  Net()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(8))),
        hidden(register_module("hidden", torch::nn::Linear(8 * 6 * 6, 32))),
        head(register_module("head", torch::nn::Linear(32, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv(x))).flatten(1);
    x = torch::dropout(torch::relu(hidden(x)), 0.1, is_training());
    return head(x);
  }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear hidden, head;
};

bool equal(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& x, const torch::Tensor& y) { return x.equal(y); });
}

int failures = 0;

void report(const std::string& what, bool good) {
  std::cout << what << ": " << (good ? "equal bit for bit" : "DIFFERENT") << "\n";
  failures += !good;
}

// Forward, loss and backward in one graph; the gradients are results.
void train(Net& net) {
  net.train();
  const torch::Tensor x = torch::randn({16, 1, 8, 8}), y = torch::randint(10, {16});
  const auto step = [&](const Tensors& in) {
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net.forward(in[0]), in[1]);
    Tensors results = torch::autograd::grad({loss}, net.parameters());
    results.push_back(loss.detach());
    return results;
  };
  const smelt::Graph graph = smelt::record(step, {x, y});
  std::cout << "a training step of " << graph.size() << " ops\n";

  // Both start from the same random numbers and the same running statistics, and change them.
  const auto from_the_start = [&](const smelt::Function& run) {
    torch::manual_seed(1);
    net.norm->reset_running_stats();
    Tensors seen = run({x, y});
    seen.push_back(net.norm->running_var.clone());
    return seen;
  };
  const Tensors eager = from_the_start(step);
  const Tensors replay = from_the_start([&](const Tensors& in) { return graph.run(in); });
  report("loss, gradients and running statistics", equal(eager, replay));
}

// backward() instead: the gradients are in the parameters.
void train_in_place(Net& net) {
  net.train();
  const torch::Tensor x = torch::randn({16, 1, 8, 8}), y = torch::randint(10, {16});
  const auto step = [&](const Tensors& in) {
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net.forward(in[0]), in[1]);
    loss.backward();
    return Tensors{loss.detach()};
  };
  const smelt::Graph graph = smelt::record(step, {x, y});
  const auto gradients_of = [&](const smelt::Function& run) {
    net.zero_grad();
    torch::manual_seed(1);
    run({x, y});
    Tensors gradients;
    for (const torch::Tensor& parameter : net.parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  report("gradients left in the parameters",
         equal(gradients_of(step), gradients_of([&](const Tensors& in) { return graph.run(in); })));
}

// One graph for batches of any size.
void infer(Net& net) {
  net.eval();
  torch::NoGradGuard no_grad;
  const auto forward = [&](const Tensors& in) { return Tensors{net.forward(in[0])}; };
  const smelt::Graph graph =
      smelt::record(forward, {torch::randn({4, 1, 8, 8})}, /*dynamic_shapes=*/{{{0, "batch"}}});
  for (const int batch : {4, 32, 3}) {
    const torch::Tensor x = torch::randn({batch, 1, 8, 8});
    report("inference of a batch of " + std::to_string(batch), equal(forward({x}), graph.run({x})));
  }
  try {
    graph.run({torch::randn({4, 1, 9, 9})});
    report("a wrong shape", false);
  } catch (const smelt::Error& error) {
    std::cout << "as it should, a wrong shape gives: " << error.what() << "\n";
  }
}

int main() {
  torch::manual_seed(0);
  Net net;
  train(net);
  train_in_place(net);
  infer(net);
  return failures;
}
