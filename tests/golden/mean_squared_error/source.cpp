// k1_mul_sum_div: 4 operations on rows of s0 * 4096 elements in one pass, each split over several
//   blocks.
// x f32[s0, 4096], y f32[s0, 4096] -> result f32[]

OPWELD_FN float k1_mul_sum_div_pass0(float x_1, float y_1) {
  // model.py:11 return torch.mean((x - y) ** 2)
  const float sub_1 = x_1 - y_1;
  const float mul_1 = sub_1 * sub_1;
  return mul_1;
}

OPWELD_FN float k1_mul_sum_div_once0(float sum_1, int64_t index_1) {
  // model.py:11 return torch.mean((x - y) ** 2)
  const float cast_1 = static_cast<float>(index_1);
  const float div_1 = sum_1 / cast_1;
  return div_1;
}

struct k1_mul_sum_div_partial {
  double sum_1;
};

extern "C" int64_t k1_mul_sum_div_partial_bytes() { return sizeof(k1_mul_sum_div_partial); }

extern "C" void k1_mul_sum_div_contiguous_fold(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end, int64_t from, int64_t to, void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  k1_mul_sum_div_partial* partial = static_cast<k1_mul_sum_div_partial*>(partials);
  constexpr int64_t kLanes = 64;
  constexpr int64_t kSpan = 1024;
  for (int64_t i = begin; i < end; ++i) {
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    double sum_1_total[kLanes] = {};
    for (int64_t span = from; span < to; span += kSpan) {
      const int64_t stop = to - span < kSpan ? to : span + kSpan;
      int64_t block = span;
      for (; block + kLanes <= stop; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const float x_1 = x[r];
          const float y_1 = y[r];
          const float value0 = k1_mul_sum_div_pass0(x_1, y_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
        }
      }
      if (block < stop) {
#pragma omp simd
        for (int64_t lane = 0; lane < stop - block; ++lane) {
          const int64_t r = block + lane;
          const float x_1 = x[r];
          const float y_1 = y[r];
          const float value0 = k1_mul_sum_div_pass0(x_1, y_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
        }
      }
      op::empty_lanes(sum_1_lane, sum_1_total);
    }
    partial[i - begin] = {op::fold_lanes<op::Sum>(sum_1_total)};
  }
}

extern "C" void k1_mul_sum_div_contiguous_finish(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end, int64_t pieces, int64_t stride, const void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  const k1_mul_sum_div_partial* partial = static_cast<const k1_mul_sum_div_partial*>(partials);
  for (int64_t i = begin; i < end; ++i) {
    k1_mul_sum_div_partial whole = partial[i - begin];
    for (int64_t k = 1; k < pieces; ++k) {
      const k1_mul_sum_div_partial piece = partial[k * stride + i - begin];
      whole.sum_1 = op::Sum::combine(whole.sum_1, piece.sum_1);
    }
    const float sum_1 = float(whole.sum_1);
    {
      const int64_t index_1 = s0 * 4096;
      const float value0 = k1_mul_sum_div_once0(sum_1, index_1);
      result[0] = value0;
    }
  }
}

extern "C" void k1_mul_sum_div_strided_fold(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t y_stride0, int64_t y_stride1, int64_t begin, int64_t end,
    int64_t from, int64_t to, void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  k1_mul_sum_div_partial* partial = static_cast<k1_mul_sum_div_partial*>(partials);
  constexpr int64_t kLanes = 64;
  constexpr int64_t kSpan = 1024;
  for (int64_t i0 = begin; i0 < end; ++i0) {
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    double sum_1_total[kLanes] = {};
    for (int64_t at = from; at < to;) {
      const int64_t r0 = at / 4096;
      const int64_t first = at % 4096;
      const int64_t stop = first + (to - at);
      const int64_t last = stop < 4096 ? stop : 4096;
      for (int64_t span = first; span < last; span += kSpan) {
        const int64_t stop = last - span < kSpan ? last : span + kSpan;
        int64_t block = span;
        for (; block + kLanes <= stop; block += kLanes) {
#pragma omp simd
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            const int64_t r1 = block + lane;
            const float x_1 = x[r0 * x_stride0 + r1 * x_stride1];
            const float y_1 = y[r0 * y_stride0 + r1 * y_stride1];
            const float value0 = k1_mul_sum_div_pass0(x_1, y_1);
            sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          }
        }
        if (block < stop) {
#pragma omp simd
          for (int64_t lane = 0; lane < stop - block; ++lane) {
            const int64_t r1 = block + lane;
            const float x_1 = x[r0 * x_stride0 + r1 * x_stride1];
            const float y_1 = y[r0 * y_stride0 + r1 * y_stride1];
            const float value0 = k1_mul_sum_div_pass0(x_1, y_1);
            sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          }
        }
        op::empty_lanes(sum_1_lane, sum_1_total);
      }
      at += last - first;
    }
    partial[i0 - begin] = {op::fold_lanes<op::Sum>(sum_1_total)};
  }
}

extern "C" void k1_mul_sum_div_strided_finish(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t y_stride0, int64_t y_stride1, int64_t begin, int64_t end,
    int64_t pieces, int64_t stride, const void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  const k1_mul_sum_div_partial* partial = static_cast<const k1_mul_sum_div_partial*>(partials);
  for (int64_t i0 = begin; i0 < end; ++i0) {
    k1_mul_sum_div_partial whole = partial[i0 - begin];
    for (int64_t k = 1; k < pieces; ++k) {
      const k1_mul_sum_div_partial piece = partial[k * stride + i0 - begin];
      whole.sum_1 = op::Sum::combine(whole.sum_1, piece.sum_1);
    }
    const float sum_1 = float(whole.sum_1);
    {
      const int64_t index_1 = s0 * 4096;
      const float value0 = k1_mul_sum_div_once0(sum_1, index_1);
      result[0] = value0;
    }
  }
}
