// Large kernels whose times are measured on a GPU (kernels.cpp), each with the time to reach.
#pragma once

struct KernelText {
  const char *name, *goal, *text;
};

inline constexpr KernelText kKernelTexts[] = {
    {"copy f32 512 MB", "4.0 TB/s", R"(kernel "copy" outer [67108864] inner []
b0: f32[67108864] input
b1: f32[67108864] output
outer stage
  v0: f32 = load b0[i0]
  store b1[i0] = v0
end
)"},
    {"copy bf16 256 MB", "4.0 TB/s", R"(kernel "copy" outer [67108864] inner []
b0: bf16[67108864] input
b1: bf16[67108864] output
outer stage
  v0: bf16 = load b0[i0]
  store b1[i0] = v0
end
)"},
    {"mul_relu_add bf16", "-", R"(kernel "mul_relu_add" outer [67108864] inner []
b0: bf16[67108864] input
b1: bf16[67108864] input
b2: bf16[67108864] output
outer stage
  v0: bf16 = load b0[i0]
  v1: f32 = cast v0
  v2: bf16 = load b1[i0]
  v3: f32 = cast v2
  v4: f32 = mul v1, v3
  v5: bf16 = cast v4
  v6: f32 = cast v5
  v7: f32 = constant 0
  v8: f32 = max v6, v7
  v9: bf16 = cast v8
  v10: f32 = cast v9
  v11: f32 = add v3, v10
  v12: bf16 = cast v11
  store b2[i0] = v12
end
)"},
    {"norm chain 8192x4096", "110 us", R"(kernel "add_layer_norm_gelu_mul" outer [8192] inner [4096]
b0: f32[33554432] input
b1: f32[4096] scratch
b2: f32[4096] input
b3: f32[4096] input
b4: f32[33554432] output
b5: f32[33554432] input
inner stage
  v0: f32 = load b0[4096*i0 + i1]
  v1: f32 = load b5[4096*i0 + i1]
  v2: f32 = add v0, v1
  v3: f32 = reduce sum v2
  v4: f32 = sigmoid v0
  store b1[i1] = v4
outer stage
  v6: f32 = constant 0.000244140625
  v7: f32 = mul v3, v6
inner stage
  v8: f32 = load b0[4096*i0 + i1]
  v9: f32 = load b5[4096*i0 + i1]
  v10: f32 = add v8, v9
  v11: f32 = sub v10, v7
  v12: f32 = mul v11, v11
  v13: f32 = reduce sum v12
outer stage
  v14: f32 = mul v6, v13
  v15: f32 = constant 9.999999747378752e-06
  v16: f32 = add v14, v15
  v17: f32 = rsqrt v16
inner stage
  v18: f32 = load b1[i1]
  v19: f32 = load b2[i1]
  v20: f32 = load b3[i1]
  v21: f32 = load b0[4096*i0 + i1]
  v22: f32 = load b5[4096*i0 + i1]
  v23: f32 = add v21, v22
  v24: f32 = sub v23, v7
  v25: f32 = mul v17, v24
  v26: f32 = mul v20, v25
  v27: f32 = add v19, v26
  v28: f32 = constant 0.7071067690849304
  v29: f32 = mul v27, v28
  v30: f32 = erf v29
  v31: f32 = constant 1
  v32: f32 = add v30, v31
  v33: f32 = constant 0.5
  v34: f32 = mul v27, v33
  v35: f32 = mul v32, v34
  v36: f32 = mul v18, v35
  store b4[4096*i0 + i1] = v36
end
)"},
    {"softmax 16384x8192", "280 us", R"(kernel "mul_add_softmax" outer [16384] inner [8192]
b0: f32[134217728] input
b1: f32[8192] scratch
b2: f32[134217728] output
inner stage
  v0: f32 = constant 1
  v1: f32 = constant 0.5
  v2: f32 = load b0[8192*i0 + i1]
  v3: f32 = mul v1, v2
  v4: f32 = add v0, v3
  v5: f32 = reduce max v4
inner stage
  v6: f32 = constant 1
  v7: f32 = constant 0.5
  v8: f32 = load b0[8192*i0 + i1]
  v9: f32 = mul v7, v8
  v10: f32 = add v6, v9
  v11: f32 = sub v10, v5
  v12: f32 = exp v11
  store b1[i1] = v12
  v14: f32 = reduce sum v12
inner stage
  v15: f32 = load b1[i1]
  v16: f32 = div v15, v14
  store b2[8192*i0 + i1] = v16
end
)"},
    {"softmax bf16 65536x1024", "-", R"(kernel "softmax" outer [65536] inner [1024]
b0: bf16[67108864] input
b1: f32[1024] scratch
b2: bf16[67108864] output
inner stage
  v0: bf16 = load b0[1024*i0 + i1]
  v1: f32 = cast v0
  v2: f32 = reduce max v1
inner stage
  v3: bf16 = load b0[1024*i0 + i1]
  v4: f32 = cast v3
  v5: f32 = sub v4, v2
  v6: f32 = exp v5
  store b1[i1] = v6
  v8: f32 = reduce sum v6
inner stage
  v9: f32 = load b1[i1]
  v10: f32 = div v9, v8
  v11: bf16 = cast v10
  store b2[1024*i0 + i1] = v11
end
)"},
    {"sum of all 256 MB", "-", R"(kernel "sum" outer [] inner [67108864]
b0: f32[67108864] input
b1: f32[1] output
inner stage
  v0: f32 = load b0[i0]
  v1: f32 = reduce sum v0
outer stage
  store b1[0] = v1
end
)"},
    {"sum of columns 16384x4096", "-", R"(kernel "sum" outer [4096] inner [16384]
b0: f32[67108864] input
b1: f32[4096] output
inner stage
  v0: f32 = load b0[i0 + 4096*i1]
  v1: f32 = reduce sum v0
outer stage
  store b1[i0] = v1
end
)"},
    {"sum of rows 65536x1024", "-", R"(kernel "sum" outer [65536] inner [1024]
b0: f32[67108864] input
b1: f32[65536] output
inner stage
  v0: f32 = load b0[1024*i0 + i1]
  v1: f32 = reduce sum v0
outer stage
  store b1[i0] = v1
end
)"},
    {"argmax 16384x4096", "-", R"(kernel "argmax" outer [16384] inner [4096]
b0: f32[67108864] input
b1: i64[16384] output
inner stage
  v0: f32 = load b0[4096*i0 + i1]
  v1: i64 = reduce argmax v0
outer stage
  store b1[i0] = v1
end
)"},
    {"transposed add 8192x8192", "-", R"(kernel "add" outer [8192, 8192] inner []
b0: f32[67108864] input
b1: f32[67108864] input
b2: f32[67108864] output
outer stage
  v0: f32 = load b0[i0 + 8192*i1]
  v1: f32 = load b1[8192*i0 + i1]
  v2: f32 = add v0, v1
  store b2[8192*i0 + i1] = v2
end
)"},
    {"softmax of columns 64x512x4096", "-", R"(kernel "softmax" outer [64, 4096] inner [512]
b0: f32[134217728] input
b1: f32[512] scratch
b2: f32[134217728] output
inner stage
  v0: f32 = load b0[2097152*i0 + i1 + 4096*i2]
  v1: f32 = reduce max v0
inner stage
  v2: f32 = load b0[2097152*i0 + i1 + 4096*i2]
  v3: f32 = sub v2, v1
  v4: f32 = exp v3
  store b1[i2] = v4
  v6: f32 = reduce sum v4
inner stage
  v7: f32 = load b1[i2]
  v8: f32 = div v7, v6
  store b2[2097152*i0 + i1 + 4096*i2] = v8
end
)"},
};
