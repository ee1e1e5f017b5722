// k1_div_add_sqrt: 7 operations on rows of 6 elements in 2 walks.
// x f32[s0, 6, 5, 4], weight f32[6] -> result0 f32[s0, 1, 5, 4], result1 f32[s0, 6, 5, 4]

OPWELD_FN float k1_div_add_sqrt_walk0(float x_1) {
  // model.py:11 rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
  const float mul_1 = x_1 * x_1;
  return mul_1;
}

OPWELD_FN void k1_div_add_sqrt_once0(float sum_1, float& result0, float& result1) {
  // model.py:11 rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
  const float div_1 = sum_1 / 6.0f;
  const float add_1 = div_1 + 1e-05f;
  const float sqrt_1 = op::sqrt(add_1);
  result0 = sqrt_1;
  result1 = sqrt_1;
}

OPWELD_FN float k1_div_add_sqrt_walk1(float x_1, float sqrt_1, float weight_1) {
  // model.py:12 return x / rms * self.weight[:, None, None], rms
  const float div_1 = x_1 / sqrt_1;
  const float mul_1 = div_1 * weight_1;
  return mul_1;
}

// What is known of a row after its walks.
struct k1_div_add_sqrt_known {
  float sum_1;
  float sqrt_1;
};

// What walk 0 folds.
struct k1_div_add_sqrt_folds0 {
  static constexpr int kChain = 8;
  float sum_1;

  OPWELD_FN k1_div_add_sqrt_folds0 nothing() {
    return {op::Sum::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    sum_1 = op::Sum::combine(sum_1, value0);
  }
  __device__ __forceinline__ void merge(const k1_div_add_sqrt_folds0& other) {
    sum_1 = op::Sum::combine(sum_1, other.sum_1);
  }
  __device__ __forceinline__ void tell(k1_div_add_sqrt_known& row) const {
    row.sum_1 = sum_1;
  }
};

// What more than one walk reads of a packet.
template <int kLanes>
struct k1_div_add_sqrt_contiguous_packet {
  op::Vector<float, kLanes> x_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_div_add_sqrt_contiguous_packet<kLanes>
k1_div_add_sqrt_contiguous_load(const float* __restrict__ x, Index row, Index at) {
  k1_div_add_sqrt_contiguous_packet<kLanes> packet;
  const Index i1 = row % 20u;
  const Index i0 = row / 20u;
  const Index r = at;
  packet.x_1 = op::load_vector<kLanes>(&x[i0 * 120u + i1 + r * 20u]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_div_add_sqrt_contiguous_walk0(
    Index row, Index at, const k1_div_add_sqrt_contiguous_packet<kLanes>& packet,
    const k1_div_add_sqrt_known (&known)[kLanes], k1_div_add_sqrt_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_div_add_sqrt_walk0(packet.x_1.lane[lane]);
    folds[lane].add(value0);
  }
}

template <typename Index>
OPWELD_FN void k1_div_add_sqrt_contiguous_once0(
    float* __restrict__ result0, Index row, bool stores, k1_div_add_sqrt_known& known) {
  const Index i1 = row % 20u;
  const Index i0 = row / 20u;
  float value0;
  float value1;
  k1_div_add_sqrt_once0(known.sum_1, value0, value1);
  known.sqrt_1 = value0;
  if (stores) {
    result0[i0 * 20u + i1] = value1;
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_div_add_sqrt_contiguous_walk1(
    const float* __restrict__ weight, float* __restrict__ result1, Index row, Index at,
    const k1_div_add_sqrt_contiguous_packet<kLanes>& packet,
    const k1_div_add_sqrt_known (&known)[kLanes], op::NoFolds (&folds)[kLanes]) {
  const Index i1 = row % 20u;
  const Index i0 = row / 20u;
  const Index r = at;
  const float weight_1 = weight[r];
  op::Vector<float, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_div_add_sqrt_walk1(packet.x_1.lane[lane], known[lane].sqrt_1, weight_1);
    result1_vector.lane[lane] = value0;
  }
  op::store_vector(&result1[i0 * 120u + i1 + r * 20u], result1_vector);
}

template <int kStrips, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kStripsThreads<kStrips>, op::kStripsBlocks<kStrips, Index>)
k1_div_add_sqrt_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ result0,
    float* __restrict__ result1, Index num_rows, Index length) {
  op::wait_for_results();
  constexpr int kColumns = op::kStripsThreads<kStrips> / kStrips;
  const int strip = threadIdx.x / kColumns;
  const Index row = (Index(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kLanes;
  const bool inside = row < num_rows;
  const Index first = 0, last = length;
  k1_div_add_sqrt_known known[kLanes];
  op::Walks<kStrips, kLanes, kItems, k1_div_add_sqrt_contiguous_packet<kLanes>, Index> walks(
      first + strip, inside ? last : 0);
  const auto load = [&](Index at) {
    return k1_div_add_sqrt_contiguous_load<kLanes>(x, row, at);
  };
  walks.hold(load);

  k1_div_add_sqrt_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_div_add_sqrt_contiguous_walk0<kLanes>(row, at, packet, known, folds);
  });
  op::in_columns<kStrips, kColumns>(folds0);
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    folds0[lane].tell(known[lane]);
    if (inside) {
      k1_div_add_sqrt_contiguous_once0(result0, row + lane, strip == 0, known[lane]);
    }
  }

  op::NoFolds folds1[kLanes];
  walks.walk(folds1, load, [&](const auto& packet, Index at, auto& folds) {
    k1_div_add_sqrt_contiguous_walk1<kLanes>(weight, result1, row, at, packet, known, folds);
  });
}

template <int kStrips, int kItems, int kLanes, typename Index>
static void k1_div_add_sqrt_contiguous_launch(
    const void* x, const void* weight, void* result0, void* result1, int64_t num_rows,
    int64_t length, cudaStream_t stream) {
  constexpr int kThreads = op::kStripsThreads<kStrips>;
  constexpr int64_t kRows = kThreads / kStrips * kLanes;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_div_add_sqrt_contiguous_kernel<kStrips, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<const float*>(x),
      static_cast<const float*>(weight), static_cast<float*>(result0), static_cast<float*>(result1),
      Index(num_rows), Index(length));
}

extern "C" int k1_div_add_sqrt_contiguous(
    const void* x, const void* weight, void* result0, void* result1, int64_t s0, int64_t num_rows,
    int64_t length, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_div_add_sqrt_contiguous_launch<8, 0, 1, uint64_t>;
  if (aligned && num_rows % 4 == 0 && num_rows >= 16384) {
    if (narrow) {
      launch = k1_div_add_sqrt_contiguous_launch<1, 8, 4, uint32_t>;
    } else {
      launch = k1_div_add_sqrt_contiguous_launch<8, 0, 4, uint64_t>;
    }
  } else if (narrow) {
    launch = k1_div_add_sqrt_contiguous_launch<1, 32, 1, uint32_t>;
  }
  launch(x, weight, result0, result1, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

// What more than one walk reads of a packet.
template <int kLanes>
struct k1_div_add_sqrt_strided_packet {
  float x_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_div_add_sqrt_strided_packet<kLanes>
k1_div_add_sqrt_strided_load(
    const float* __restrict__ x, Index x_stride0, Index x_stride1, Index x_stride2, Index x_stride3,
    Index row, Index at) {
  k1_div_add_sqrt_strided_packet<kLanes> packet;
  const Index r1 = at;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_row = row + lane;
    const Index i3 = lane_row % 4u;
    const Index above_i3 = lane_row / 4u;
    const Index i2 = above_i3 % 5u;
    const Index i0 = above_i3 / 5u;
    const float x_1 = x[i0 * x_stride0 + i2 * x_stride2 + i3 * x_stride3 + r1 * x_stride1];
    packet.x_1[lane] = x_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_div_add_sqrt_strided_walk0(
    Index row, Index at, const k1_div_add_sqrt_strided_packet<kLanes>& packet,
    const k1_div_add_sqrt_known (&known)[kLanes], k1_div_add_sqrt_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_div_add_sqrt_walk0(packet.x_1[lane]);
    folds[lane].add(value0);
  }
}

template <typename Index>
OPWELD_FN void k1_div_add_sqrt_strided_once0(
    float* __restrict__ result0, Index result0_stride0, Index result0_stride2,
    Index result0_stride3, Index row, bool stores, k1_div_add_sqrt_known& known) {
  const Index i3 = row % 4u;
  const Index above_i3 = row / 4u;
  const Index i2 = above_i3 % 5u;
  const Index i0 = above_i3 / 5u;
  float value0;
  float value1;
  k1_div_add_sqrt_once0(known.sum_1, value0, value1);
  known.sqrt_1 = value0;
  if (stores) {
    result0[i0 * result0_stride0 + i2 * result0_stride2 + i3 * result0_stride3] = value1;
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_div_add_sqrt_strided_walk1(
    const float* __restrict__ weight, float* __restrict__ result1, Index weight_stride0,
    Index result1_stride0, Index result1_stride1, Index result1_stride2, Index result1_stride3,
    Index row, Index at, const k1_div_add_sqrt_strided_packet<kLanes>& packet,
    const k1_div_add_sqrt_known (&known)[kLanes], op::NoFolds (&folds)[kLanes]) {
  const Index r1 = at;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_row = row + lane;
    const Index i3 = lane_row % 4u;
    const Index above_i3 = lane_row / 4u;
    const Index i2 = above_i3 % 5u;
    const Index i0 = above_i3 / 5u;
    const float weight_1 = weight[r1 * weight_stride0];
    const float value0 = k1_div_add_sqrt_walk1(packet.x_1[lane], known[lane].sqrt_1, weight_1);
    result1[i0 * result1_stride0 + i2 * result1_stride2 + i3 * result1_stride3
        + r1 * result1_stride1] = value0;
  }
}

template <int kStrips, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kStripsThreads<kStrips>, op::kStripsBlocks<kStrips, Index>)
k1_div_add_sqrt_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ result0,
    float* __restrict__ result1, Index x_stride0, Index x_stride1, Index x_stride2, Index x_stride3,
    Index result0_stride0, Index result0_stride2, Index result0_stride3, Index weight_stride0,
    Index result1_stride0, Index result1_stride1, Index result1_stride2, Index result1_stride3,
    Index num_rows, Index length) {
  op::wait_for_results();
  constexpr int kColumns = op::kStripsThreads<kStrips> / kStrips;
  const int strip = threadIdx.x / kColumns;
  const Index row = (Index(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kLanes;
  const bool inside = row < num_rows;
  const Index first = 0, last = length;
  k1_div_add_sqrt_known known[kLanes];
  op::Walks<kStrips, kLanes, kItems, k1_div_add_sqrt_strided_packet<kLanes>, Index> walks(
      first + strip, inside ? last : 0);
  const auto load = [&](Index at) {
    return k1_div_add_sqrt_strided_load<kLanes>(x, x_stride0, x_stride1, x_stride2, x_stride3, row,
        at);
  };
  walks.hold(load);

  k1_div_add_sqrt_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_div_add_sqrt_strided_walk0<kLanes>(row, at, packet, known, folds);
  });
  op::in_columns<kStrips, kColumns>(folds0);
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    folds0[lane].tell(known[lane]);
    if (inside) {
      k1_div_add_sqrt_strided_once0(
          result0, result0_stride0, result0_stride2,
          result0_stride3, row + lane, strip == 0,
          known[lane]);
    }
  }

  op::NoFolds folds1[kLanes];
  walks.walk(folds1, load, [&](const auto& packet, Index at, auto& folds) {
    k1_div_add_sqrt_strided_walk1<kLanes>(
        weight, result1, weight_stride0, result1_stride0,
        result1_stride1, result1_stride2,
        result1_stride3, row, at, packet, known, folds);
  });
}

template <int kStrips, int kItems, int kLanes, typename Index>
static void k1_div_add_sqrt_strided_launch(
    const void* x, const void* weight, void* result0, void* result1, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t x_stride3, int64_t result0_stride0,
    int64_t result0_stride2, int64_t result0_stride3, int64_t weight_stride0,
    int64_t result1_stride0, int64_t result1_stride1, int64_t result1_stride2,
    int64_t result1_stride3, int64_t num_rows, int64_t length, cudaStream_t stream) {
  constexpr int kThreads = op::kStripsThreads<kStrips>;
  constexpr int64_t kRows = kThreads / kStrips * kLanes;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_div_add_sqrt_strided_kernel<kStrips, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<const float*>(x),
      static_cast<const float*>(weight), static_cast<float*>(result0), static_cast<float*>(result1),
      Index(x_stride0), Index(x_stride1), Index(x_stride2), Index(x_stride3),
      Index(result0_stride0), Index(result0_stride2), Index(result0_stride3), Index(weight_stride0),
      Index(result1_stride0), Index(result1_stride1), Index(result1_stride2),
      Index(result1_stride3), Index(num_rows), Index(length));
}

extern "C" int k1_div_add_sqrt_strided(
    const void* x, const void* weight, void* result0, void* result1, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t x_stride3, int64_t result0_stride0,
    int64_t result0_stride2, int64_t result0_stride3, int64_t weight_stride0,
    int64_t result1_stride0, int64_t result1_stride1, int64_t result1_stride2,
    int64_t result1_stride3, int64_t num_rows, int64_t length, int64_t max_offset, int aligned,
    void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_div_add_sqrt_strided_launch<8, 0, 1, uint64_t>;
  if (narrow) {
    launch = k1_div_add_sqrt_strided_launch<8, 0, 1, uint32_t>;
  }
  launch(
      x, weight, result0, result1, x_stride0, x_stride1, x_stride2, x_stride3, result0_stride0,
      result0_stride2, result0_stride3, weight_stride0, result1_stride0, result1_stride1,
      result1_stride2, result1_stride3, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
