// k1_relu: one operation, one read and one write of memory.
// conv2d f32[s0, 64, 28, 28] -> result f32[s0, 64, 28, 28]

OPWELD_FN float k1_relu_element(float conv2d_1) {
  // model.py:11 y = F.relu(self.a(x))
  const float relu_1 = op::relu(conv2d_1);
  return relu_1;
}

extern "C" void k1_relu_contiguous(
    const void* conv2d_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ conv2d = static_cast<const float*>(conv2d_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float conv2d_1 = conv2d[i];
    const float value0 = k1_relu_element(conv2d_1);
    result[i] = value0;
  }
}

extern "C" void k1_relu_strided(
    const void* conv2d_data, void* result_data, int64_t s0, int64_t conv2d_stride0,
    int64_t conv2d_stride1, int64_t conv2d_stride2, int64_t conv2d_stride3, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t result_stride3, int64_t begin,
    int64_t end) {
  const float* __restrict__ conv2d = static_cast<const float*>(conv2d_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 28;
    const int64_t i2 = outer % 28;
    const int64_t above_i2 = outer / 28;
    const int64_t i1 = above_i2 % 64;
    const int64_t i0 = above_i2 / 64;
    const int64_t first = at % 28;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 28 ? stop : 28;
#pragma omp simd
    for (int64_t i3 = first; i3 < last; ++i3) {
      const float conv2d_1 = conv2d[conv2d_stride0 * i0 + conv2d_stride1 * i1 + conv2d_stride2 * i2
          + conv2d_stride3 * i3];
      const float value0 = k1_relu_element(conv2d_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
          + i3 * result_stride3] = value0;
    }
    at += last - first;
  }
}

// k2_add_relu: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// conv2d f32[s0, 64, 28, 28], relu_out f32[s0, 64, 28, 28] -> result f32[s0, 64, 28, 28]

OPWELD_FN float k2_add_relu_element(float conv2d_1, float relu_out_1) {
  // model.py:12 y = F.relu(self.b(y) + y)
  const float add_1 = conv2d_1 + relu_out_1;
  const float relu_1 = op::relu(add_1);
  return relu_1;
}

extern "C" void k2_add_relu_contiguous(
    const void* conv2d_data, const void* relu_out_data, void* result_data, int64_t s0,
    int64_t begin, int64_t end) {
  const float* __restrict__ conv2d = static_cast<const float*>(conv2d_data);
  const float* __restrict__ relu_out = static_cast<const float*>(relu_out_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float conv2d_1 = conv2d[i];
    const float relu_out_1 = relu_out[i];
    const float value0 = k2_add_relu_element(conv2d_1, relu_out_1);
    result[i] = value0;
  }
}

extern "C" void k2_add_relu_strided(
    const void* conv2d_data, const void* relu_out_data, void* result_data, int64_t s0,
    int64_t conv2d_stride0, int64_t conv2d_stride1, int64_t conv2d_stride2, int64_t conv2d_stride3,
    int64_t relu_out_stride0, int64_t relu_out_stride1, int64_t relu_out_stride2,
    int64_t relu_out_stride3, int64_t result_stride0, int64_t result_stride1,
    int64_t result_stride2, int64_t result_stride3, int64_t begin, int64_t end) {
  const float* __restrict__ conv2d = static_cast<const float*>(conv2d_data);
  const float* __restrict__ relu_out = static_cast<const float*>(relu_out_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 28;
    const int64_t i2 = outer % 28;
    const int64_t above_i2 = outer / 28;
    const int64_t i1 = above_i2 % 64;
    const int64_t i0 = above_i2 / 64;
    const int64_t first = at % 28;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 28 ? stop : 28;
#pragma omp simd
    for (int64_t i3 = first; i3 < last; ++i3) {
      const float conv2d_1 = conv2d[conv2d_stride0 * i0 + conv2d_stride1 * i1 + conv2d_stride2 * i2
          + conv2d_stride3 * i3];
      const float relu_out_1 = relu_out[i0 * relu_out_stride0 + i1 * relu_out_stride1
          + i2 * relu_out_stride2 + i3 * relu_out_stride3];
      const float value0 = k2_add_relu_element(conv2d_1, relu_out_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
          + i3 * result_stride3] = value0;
    }
    at += last - first;
  }
}

// k3_sigmoid_mean: 2 operations on rows of 156 elements in one pass.
// conv2d f32[s0, 96, 12, 13] -> result f32[s0, 96, 1, 1]

OPWELD_FN float k3_sigmoid_mean_pass0(float conv2d_1) {
  // model.py:13 return torch.sigmoid(self.c(y)).mean((2, 3))
  const float sigmoid_1 = op::sigmoid(conv2d_1);
  return sigmoid_1;
}

OPWELD_FN float k3_sigmoid_mean_once0(float mean_1) {
  return mean_1;
}

extern "C" void k3_sigmoid_mean_contiguous(
    const void* conv2d_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ conv2d = static_cast<const float*>(conv2d_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  const double kLength = 156;
  for (int64_t i = begin; i < end; ++i) {
    double mean_1_sum[kLanes] = {};
    {
      int64_t block = 0;
      for (; block + kLanes <= 156; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const float conv2d_1 = conv2d[i * 156 + r];
          const float value0 = k3_sigmoid_mean_pass0(conv2d_1);
          mean_1_sum[lane] += value0;
        }
      }
      if (block < 156) {
#pragma omp simd
        for (int64_t lane = 0; lane < 156 - block; ++lane) {
          const int64_t r = block + lane;
          const float conv2d_1 = conv2d[i * 156 + r];
          const float value0 = k3_sigmoid_mean_pass0(conv2d_1);
          mean_1_sum[lane] += value0;
        }
      }
    }
    const float mean_1 = float(op::fold_lanes<op::Sum>(mean_1_sum) / kLength);
    {
      const float value0 = k3_sigmoid_mean_once0(mean_1);
      result[i] = value0;
    }
  }
}

extern "C" void k3_sigmoid_mean_strided(
    const void* conv2d_data, void* result_data, int64_t s0, int64_t conv2d_stride0,
    int64_t conv2d_stride1, int64_t conv2d_stride2, int64_t conv2d_stride3, int64_t result_stride0,
    int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ conv2d = static_cast<const float*>(conv2d_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  const double kLength = 156;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t outer = row;
    const int64_t i1 = outer % 96;
    const int64_t i0 = outer / 96;
    double mean_1_sum[kLanes] = {};
    for (int64_t r2 = 0; r2 < 12; ++r2) {
      int64_t block = 0;
      if (block < 13) {
#pragma omp simd
        for (int64_t lane = 0; lane < 13 - block; ++lane) {
          const int64_t r3 = block + lane;
          const float conv2d_1 = conv2d[conv2d_stride0 * i0 + conv2d_stride1 * i1
              + conv2d_stride2 * r2 + conv2d_stride3 * r3];
          const float value0 = k3_sigmoid_mean_pass0(conv2d_1);
          mean_1_sum[lane] += value0;
        }
      }
    }
    const float mean_1 = float(op::fold_lanes<op::Sum>(mean_1_sum) / kLength);
    {
      const float value0 = k3_sigmoid_mean_once0(mean_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
  }
}
