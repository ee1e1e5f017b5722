// k1_cummax_div_cummax_place: 5 operations on rows of 40 elements that are scanned in one pass.
// x f32[s0, 40], mask f32[40] -> result0 f32[s0, 40], result1 i64[s0, 40]

OPWELD_FN float k1_cummax_div_cummax_place_scanned(float x_1, float mask_1) {
  // model.py:11 kept = x * mask
  const float mul_1 = x_1 * mask_1;
  return mul_1;
}

OPWELD_FN void k1_cummax_div_cummax_place_after(
    float cumsum_1, float cummax_1, int64_t cummax_place_1, float& result0, int64_t& result1) {
  // model.py:13 return torch.cumsum(kept, dim=1) / largest, place
  const float div_1 = cumsum_1 / cummax_1;
  result0 = div_1;
  result1 = cummax_place_1;
}

// What an element knows of the scans.
struct k1_cummax_div_cummax_place_known {
  float cumsum_1;
  float cummax_1;
  int64_t cummax_place_1;
};

// What is scanned.
struct k1_cummax_div_cummax_place_folds0 {
  float cumsum_1;
  op::Placed<float, int64_t> cummax_place_1;

  OPWELD_FN k1_cummax_div_cummax_place_folds0 nothing() {
    return {op::Sum::identity<float>(), op::Cummax::nowhere<float>()};
  }
  __device__ __forceinline__ void add(float value0, float value1, int64_t position) {
    *this = {value0, {value1, position}};
  }
  __device__ __forceinline__ void follow(const k1_cummax_div_cummax_place_folds0& later) {
    cumsum_1 = op::Sum::combine(cumsum_1, later.cumsum_1);
    cummax_place_1 = op::Cummax::combine(cummax_place_1, later.cummax_place_1);
  }
  __device__ __forceinline__ void tell(k1_cummax_div_cummax_place_known& element) const {
    element.cumsum_1 = cumsum_1;
    element.cummax_1 = cummax_place_1.value;
    element.cummax_place_1 = cummax_place_1.position;
  }
};

// What is carried along a row.
struct k1_cummax_div_cummax_place_carry {
  op::CarriedSum<float> cumsum_1;
  op::Carried<op::Cummax, op::Placed<float, int64_t>> cummax_place_1;

  OPWELD_FN k1_cummax_div_cummax_place_carry nothing() {
    return {op::CarriedSum<float>::of(op::Sum::identity<float>()), op::Carried<op::Cummax,
        op::Placed<float, int64_t>>::of(op::Cummax::nowhere<float>())};
  }
  __device__ __forceinline__ void follow(const k1_cummax_div_cummax_place_folds0& later) {
    cumsum_1.follow(later.cumsum_1);
    cummax_place_1.follow(later.cummax_place_1);
  }
  __device__ __forceinline__ void follow(const k1_cummax_div_cummax_place_carry& later) {
    cumsum_1.follow(later.cumsum_1);
    cummax_place_1.follow(later.cummax_place_1);
  }
  __device__ __forceinline__ k1_cummax_div_cummax_place_folds0
  told(const k1_cummax_div_cummax_place_folds0& before) const {
    return {cumsum_1.told(before.cumsum_1), cummax_place_1.told(before.cummax_place_1)};
  }
  __device__ __forceinline__ k1_cummax_div_cummax_place_folds0
  told(
    const k1_cummax_div_cummax_place_folds0& before,
    const k1_cummax_div_cummax_place_folds0& mine) const {
    return {cumsum_1.told(before.cumsum_1, mine.cumsum_1),
        cummax_place_1.told(before.cummax_place_1, mine.cummax_place_1)};
  }
};

// What the pass reads of a packet.
template <int kLanes>
struct k1_cummax_div_cummax_place_contiguous_packet {
  op::Vector<float, kLanes> x_1;
  op::Vector<float, kLanes> mask_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_cummax_div_cummax_place_contiguous_packet<kLanes>
k1_cummax_div_cummax_place_contiguous_load(
    const float* __restrict__ x, const float* __restrict__ mask, Index row, Index at) {
  k1_cummax_div_cummax_place_contiguous_packet<kLanes> packet;
  const Index i = row;
  const Index r = at;
  packet.x_1 = op::load_vector<kLanes>(&x[i * 40u + r]);
  packet.mask_1 = op::load_vector<kLanes>(&mask[r]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cummax_div_cummax_place_contiguous_scanned(
    Index row, Index at, const k1_cummax_div_cummax_place_contiguous_packet<kLanes>& packet,
    k1_cummax_div_cummax_place_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cummax_div_cummax_place_scanned(
        packet.x_1.lane[lane], packet.mask_1.lane[lane]);
    folds[lane].add(value0, value0, at + lane);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cummax_div_cummax_place_contiguous_after(
    float* __restrict__ result0, int64_t* __restrict__ result1, Index row, Index at,
    const k1_cummax_div_cummax_place_contiguous_packet<kLanes>& packet,
    const k1_cummax_div_cummax_place_known (&known)[kLanes]) {
  const Index i = row;
  const Index r = at;
  op::Vector<float, kLanes> result0_vector;
  op::Vector<int64_t, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    int64_t value1;
    k1_cummax_div_cummax_place_after(
        known[lane].cumsum_1, known[lane].cummax_1, known[lane].cummax_place_1, value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(&result0[i * 40u + r], result0_vector);
  op::store_vector(&result1[i * 40u + r], result1_vector);
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_cummax_div_cummax_place_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ mask, float* __restrict__ result0,
    int64_t* __restrict__ result1, Index num_rows, Index length) {
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const op::ScanAlong<kTeam, kItems, kLanes, false, false, Index> scan(
      length / kLanes);
  k1_cummax_div_cummax_place_carry carry = k1_cummax_div_cummax_place_carry::nothing();
  const auto load = [&](Index at) {
    return k1_cummax_div_cummax_place_contiguous_load<kLanes>(x, mask, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cummax_div_cummax_place_contiguous_scanned<kLanes>(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cummax_div_cummax_place_contiguous_after<kLanes>(result0, result1, row, at, packet, known);
  };
  scan.template walk<k1_cummax_div_cummax_place_folds0, k1_cummax_div_cummax_place_known,
      k1_cummax_div_cummax_place_contiguous_packet<kLanes>>(carry, load, scanned, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cummax_div_cummax_place_contiguous_launch(
    const void* x, const void* mask, void* result0, void* result1, int64_t num_rows, int64_t length,
    cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_cummax_div_cummax_place_contiguous_kernel<kTeam, kItems, kLanes, Index>;
  kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(mask), static_cast<float*>(result0),
      static_cast<int64_t*>(result1), Index(num_rows), Index(length));
}

static int k1_cummax_div_cummax_place_contiguous(
    const void* x, const void* mask, void* result0, void* result1, int64_t s0, int64_t num_rows,
    int64_t length, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_cummax_div_cummax_place_contiguous_launch<256, 1, 1, uint64_t>;
  if (aligned && length % 2 == 0) {
    if (narrow) {
      launch = k1_cummax_div_cummax_place_contiguous_launch<32, 1, 2, uint32_t>;
    } else {
      launch = k1_cummax_div_cummax_place_contiguous_launch<256, 1, 2, uint64_t>;
    }
  } else if (narrow) {
    launch = k1_cummax_div_cummax_place_contiguous_launch<32, 1, 1, uint32_t>;
  }
  launch(x, mask, result0, result1, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

// What the pass reads of a packet.
template <int kLanes>
struct k1_cummax_div_cummax_place_strided_packet {
  float x_1[kLanes];
  float mask_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_cummax_div_cummax_place_strided_packet<kLanes>
k1_cummax_div_cummax_place_strided_load(
    const float* __restrict__ x, const float* __restrict__ mask, Index x_stride0, Index x_stride1,
    Index mask_stride0, Index row, Index at) {
  k1_cummax_div_cummax_place_strided_packet<kLanes> packet;
  const Index i0 = row;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r1 = lane_at;
    const float x_1 = x[i0 * x_stride0 + r1 * x_stride1];
    packet.x_1[lane] = x_1;
    const float mask_1 = mask[mask_stride0 * r1];
    packet.mask_1[lane] = mask_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cummax_div_cummax_place_strided_scanned(
    Index row, Index at, const k1_cummax_div_cummax_place_strided_packet<kLanes>& packet,
    k1_cummax_div_cummax_place_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cummax_div_cummax_place_scanned(packet.x_1[lane], packet.mask_1[lane]);
    folds[lane].add(value0, value0, at + lane);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cummax_div_cummax_place_strided_after(
    float* __restrict__ result0, int64_t* __restrict__ result1, Index result0_stride0,
    Index result0_stride1, Index result1_stride0, Index result1_stride1, Index row, Index at,
    const k1_cummax_div_cummax_place_strided_packet<kLanes>& packet,
    const k1_cummax_div_cummax_place_known (&known)[kLanes]) {
  const Index i0 = row;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r1 = lane_at;
    float value0;
    int64_t value1;
    k1_cummax_div_cummax_place_after(
        known[lane].cumsum_1, known[lane].cummax_1, known[lane].cummax_place_1, value0, value1);
    result0[i0 * result0_stride0 + r1 * result0_stride1] = value0;
    result1[i0 * result1_stride0 + r1 * result1_stride1] = value1;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_cummax_div_cummax_place_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ mask, float* __restrict__ result0,
    int64_t* __restrict__ result1, Index x_stride0, Index x_stride1, Index mask_stride0,
    Index result0_stride0, Index result0_stride1, Index result1_stride0, Index result1_stride1,
    Index num_rows, Index length) {
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const op::ScanAlong<kTeam, kItems, kLanes, false, false, Index> scan(
      length / kLanes);
  k1_cummax_div_cummax_place_carry carry = k1_cummax_div_cummax_place_carry::nothing();
  const auto load = [&](Index at) {
    return k1_cummax_div_cummax_place_strided_load<kLanes>(
        x, mask, x_stride0, x_stride1, mask_stride0, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cummax_div_cummax_place_strided_scanned<kLanes>(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cummax_div_cummax_place_strided_after<kLanes>(
        result0, result1, result0_stride0, result0_stride1, result1_stride0, result1_stride1, row,
        at, packet, known);
  };
  scan.template walk<k1_cummax_div_cummax_place_folds0, k1_cummax_div_cummax_place_known,
      k1_cummax_div_cummax_place_strided_packet<kLanes>>(carry, load, scanned, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cummax_div_cummax_place_strided_launch(
    const void* x, const void* mask, void* result0, void* result1, int64_t x_stride0,
    int64_t x_stride1, int64_t mask_stride0, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t num_rows, int64_t length,
    cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_cummax_div_cummax_place_strided_kernel<kTeam, kItems, kLanes, Index>;
  kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(mask), static_cast<float*>(result0),
      static_cast<int64_t*>(result1), Index(x_stride0), Index(x_stride1), Index(mask_stride0),
      Index(result0_stride0), Index(result0_stride1), Index(result1_stride0),
      Index(result1_stride1), Index(num_rows), Index(length));
}

static int k1_cummax_div_cummax_place_strided(
    const void* x, const void* mask, void* result0, void* result1, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t mask_stride0, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t num_rows, int64_t length,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_cummax_div_cummax_place_strided_launch<256, 1, 1, uint64_t>;
  if (narrow) {
    launch = k1_cummax_div_cummax_place_strided_launch<32, 1, 1, uint32_t>;
  }
  launch(
      x, mask, result0, result1, x_stride0, x_stride1, mask_stride0, result0_stride0,
      result0_stride1, result1_stride0, result1_stride1, num_rows, length,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_cummax_div_cummax_place_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &mask = operands[1], &result0 = operands[2],
      &result1 = operands[3];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 40}},
                                     {op::type_of<float>, {40}},
                                     {op::type_of<float>, {s0, 40}},
                                     {op::type_of<int64_t>, {s0, 40}}});
  const int64_t num_rows = s0;
  const int64_t length = 40;
  if (call.misfit || num_rows == 0) return call.misfit;
  if (call.contiguous) {
    return k1_cummax_div_cummax_place_contiguous(
      x.data, mask.data, result0.data, result1.data, s0, num_rows, length, call.reach, call.aligned,
      stream);
  }
  return k1_cummax_div_cummax_place_strided(
      x.data, mask.data, result0.data, result1.data, s0, x.strides[0], x.strides[1],
      mask.strides[0], result0.strides[0], result0.strides[1], result1.strides[0],
      result1.strides[1], num_rows, length, call.reach, call.aligned, stream);
}
