// Kernels as text, for bench/cpu_kernels.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace kernel_texts {

inline std::string text(int64_t number) { return std::to_string(number); }

inline std::string buffer(int number, const char* dtype, int64_t elements, const char* kind) {
  return "b" + text(number) + ": " + dtype + "[" + text(elements) + "] " + kind + "\n";
}

inline std::string copy_text(int64_t n) {
  return "kernel \"copy\" outer [" + text(n) + "] inner []\n" + buffer(0, "f32", n, "input") +
         buffer(1, "f32", n, "output") +
         "outer stage\n  v0: f32 = load b0[i0]\n  v1: f32 = neg v0\n  store b1[i0] = v1\nend\n";
}

inline std::string add_text(int64_t n) {
  return "kernel \"add\" outer [" + text(n) + "] inner []\n" + buffer(0, "f32", n, "input") +
         buffer(1, "f32", n, "input") + buffer(2, "f32", n, "output") +
         "outer stage\n  v0: f32 = load b0[i0]\n  v1: f32 = load b1[i0]\n  v2: f32 = add v0, v1\n"
         "  store b2[i0] = v2\nend\n";
}

// As aten::silu is written: x / (1 + exp(-x)) in f32.
inline std::string silu_bf16_text(int64_t n) {
  return "kernel \"silu_bf16\" outer [" + text(n) + "] inner []\n" + buffer(0, "bf16", n, "input") +
         buffer(1, "bf16", n, "output") +
         "outer stage\n  v0: bf16 = load b0[i0]\n  v1: f32 = cast v0\n  v2: f32 = neg v1\n"
         "  v3: f32 = exp v2\n  v4: f32 = constant 1\n  v5: f32 = add v3, v4\n"
         "  v6: f32 = div v1, v5\n  v7: bf16 = cast v6\n  store b1[i0] = v7\nend\n";
}

inline std::string gelu_text(int64_t n) {
  return "kernel \"gelu\" outer [" + text(n) + "] inner []\n" + buffer(0, "f32", n, "input") +
         buffer(1, "f32", n, "output") +
         "outer stage\n  v0: f32 = load b0[i0]\n  v1: f32 = constant 0.7071067811865476\n"
         "  v2: f32 = mul v0, v1\n  v3: f32 = erf v2\n  v4: f32 = constant 1\n  v5: f32 = add v3, "
         "v4\n"
         "  v6: f32 = constant 0.5\n  v7: f32 = mul v5, v6\n  v8: f32 = mul v0, v7\n"
         "  store b1[i0] = v8\nend\n";
}

inline std::string softmax_text(int64_t rows, int64_t columns) {
  const std::string at = "[" + text(columns) + "*i0 + i1]";
  return "kernel \"softmax\" outer [" + text(rows) + "] inner [" + text(columns) + "]\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", columns, "scratch") +
         buffer(2, "f32", rows * columns, "output") + "inner stage\n  v0: f32 = load b0" + at +
         "\n  v1: f32 = reduce max v0\n" + "inner stage\n  v2: f32 = load b0" + at +
         "\n  v3: f32 = sub v2, v1\n  v4: f32 = exp v3\n" +
         "  store b1[i1] = v4\n  v6: f32 = reduce sum v4\n" +
         "inner stage\n  v7: f32 = load b1[i1]\n  v8: f32 = div v7, v6\n  store b2" + at +
         " = v8\nend\n";
}

inline std::string layer_norm_text(int64_t rows, int64_t columns) {
  const std::string at = "[" + text(columns) + "*i0 + i1]", n = text(columns);
  return "kernel \"layer_norm\" outer [" + text(rows) + "] inner [" + n + "]\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", columns, "input") +
         buffer(2, "f32", columns, "input") + buffer(3, "f32", rows * columns, "output") +
         "inner stage\n  v0: f32 = load b0" + at + "\n  v1: f32 = reduce sum v0\n" +
         "outer stage\n  v2: f32 = constant " + n + "\n  v3: f32 = div v1, v2\n" +
         "inner stage\n  v4: f32 = load b0" + at +
         "\n  v5: f32 = sub v4, v3\n  v6: f32 = mul v5, v5\n" + "  v7: f32 = reduce sum v6\n" +
         "outer stage\n  v8: f32 = div v7, v2\n  v9: f32 = constant 1e-5\n" +
         "  v10: f32 = add v8, v9\n  v11: f32 = rsqrt v10\n" + "inner stage\n  v12: f32 = load b0" +
         at + "\n  v13: f32 = sub v12, v3\n  v14: f32 = mul v13, v11\n  v15: f32 = load b1[i1]\n" +
         "  v16: f32 = mul v14, v15\n  v17: f32 = load b2[i1]\n  v18: f32 = add v16, v17\n  store "
         "b3" +
         at + " = v18\nend\n";
}

inline std::string sum_text(int64_t rows, int64_t columns, bool of_columns) {
  const std::string at = of_columns ? text(columns) + "*i1 + i0" : text(columns) + "*i0 + i1";
  const int64_t outer = of_columns ? columns : rows, inner = of_columns ? rows : columns;
  return "kernel \"sum\" outer [" + text(outer) + "] inner [" + text(inner) + "]\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", outer, "output") +
         "inner stage\n  v0: f32 = load b0[" + at + "]\n  v1: f32 = reduce sum v0\n" +
         "outer stage\n  store b1[i0] = v1\nend\n";
}

inline std::string transpose_text(int64_t rows, int64_t columns) {
  return "kernel \"transpose\" outer [" + text(columns) + ", " + text(rows) + "] inner []\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", rows * columns, "output") +
         "outer stage\n  v0: f32 = load b0[" + text(columns) + "*i1 + i0]\n  store b1[" +
         text(rows) + "*i0 + i1] = v0\nend\n";
}

// Five ops in a row, on f32 or rounded to bf16 after each as eager does: scale, shift, relu,
// product with a second tensor, residual.
inline std::string chain_text(int64_t n, const char* dtype) {
  const std::string type = dtype;
  std::string body;
  int last = -1;
  auto add = [&](const std::string& of, const std::string& instruction) {
    body += "  v" + text(++last) + ": " + of + " = " + instruction + "\n";
    return "v" + text(last);
  };
  auto wide = [&](const std::string& v) { return type == "f32" ? v : add("f32", "cast " + v); };
  auto rounded = [&](const std::string& v) {
    return type == "f32" ? v : add("f32", "cast " + add(type, "cast " + v));
  };
  const std::string x = wide(add(type, "load b0[i0]")), y = wide(add(type, "load b1[i0]"));
  std::string v = rounded(add("f32", "mul " + x + ", " + add("f32", "constant 1.25")));
  v = rounded(add("f32", "add " + v + ", " + add("f32", "constant -0.5")));
  v = add("f32", "max " + v + ", " + add("f32", "constant 0"));
  v = rounded(add("f32", "mul " + v + ", " + y));
  v = add("f32", "add " + v + ", " + x);
  if (type != "f32") v = add(type, "cast " + v);
  return "kernel \"chain\" outer [" + text(n) + "] inner []\n" + buffer(0, dtype, n, "input") +
         buffer(1, dtype, n, "input") + buffer(2, dtype, n, "output") + "outer stage\n" + body +
         "  store b2[i0] = " + v + "\nend\n";
}

}  // namespace kernel_texts
