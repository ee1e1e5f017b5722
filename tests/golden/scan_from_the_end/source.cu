// k1_cast_cumsum: 3 operations on rows of 9 elements that are scanned in one pass.
// x bf16[s0, 9, 16] -> result bf16[s0, 9, 16]

OPWELD_FN float k1_cast_cumsum_scanned(float x_1) {
  const float cast_1 = x_1;
  return cast_1;
}

OPWELD_FN float k1_cast_cumsum_after(float cumsum_1) {
  // model.py:11 return x.flip(1).cumsum(1).flip(1) - x
  const float cast_1 = op::to_compute(op::from_compute<op::bfloat16>(cumsum_1));
  return cast_1;
}

// What an element knows of the scans.
struct k1_cast_cumsum_known {
  float cumsum_1;
};

// What is scanned.
struct k1_cast_cumsum_folds0 {
  float cumsum_1;

  OPWELD_FN k1_cast_cumsum_folds0 nothing() {
    return {op::Sum::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    *this = {value0};
  }
  __device__ __forceinline__ void follow(const k1_cast_cumsum_folds0& later) {
    cumsum_1 = op::Sum::combine(cumsum_1, later.cumsum_1);
  }
  __device__ __forceinline__ void tell(k1_cast_cumsum_known& element) const {
    element.cumsum_1 = cumsum_1;
  }
};

// What is carried along a row.
struct k1_cast_cumsum_carry {
  op::CarriedSum<float> cumsum_1;

  OPWELD_FN k1_cast_cumsum_carry nothing() {
    return {op::CarriedSum<float>::of(op::Sum::identity<float>())};
  }
  __device__ __forceinline__ void follow(const k1_cast_cumsum_folds0& later) {
    cumsum_1.follow(later.cumsum_1);
  }
  __device__ __forceinline__ void follow(const k1_cast_cumsum_carry& later) {
    cumsum_1.follow(later.cumsum_1);
  }
  __device__ __forceinline__ k1_cast_cumsum_folds0
  told(const k1_cast_cumsum_folds0& before) const {
    return {cumsum_1.told(before.cumsum_1)};
  }
  __device__ __forceinline__ k1_cast_cumsum_folds0
  told(const k1_cast_cumsum_folds0& before, const k1_cast_cumsum_folds0& mine) const {
    return {cumsum_1.told(before.cumsum_1, mine.cumsum_1)};
  }
};

// What the pass reads of a packet.
template <int kLanes>
struct k1_cast_cumsum_contiguous_packet {
  op::Vector<op::bfloat16, kLanes> x_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_cast_cumsum_contiguous_packet<kLanes>
k1_cast_cumsum_contiguous_load(const op::bfloat16* __restrict__ x, Index row, Index at) {
  k1_cast_cumsum_contiguous_packet<kLanes> packet;
  const Index i1 = row % 16u;
  const Index i0 = row / 16u;
  const Index r = at;
  packet.x_1 = op::load_vector<kLanes>(&x[i0 * 144u + i1 + r * 16u]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cast_cumsum_contiguous_scanned(
    Index row, Index at, const k1_cast_cumsum_contiguous_packet<kLanes>& packet,
    k1_cast_cumsum_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cast_cumsum_scanned(op::to_compute(packet.x_1.lane[lane]));
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cast_cumsum_contiguous_after(
    op::bfloat16* __restrict__ result, Index row, Index at,
    const k1_cast_cumsum_contiguous_packet<kLanes>& packet,
    const k1_cast_cumsum_known (&known)[kLanes]) {
  const Index i1 = row % 16u;
  const Index i0 = row / 16u;
  const Index r = at;
  op::Vector<op::bfloat16, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cast_cumsum_after(known[lane].cumsum_1);
    result_vector.lane[lane] = op::from_compute<op::bfloat16>(value0);
  }
  op::store_vector(&result[i0 * 144u + i1 + r * 16u], result_vector);
}

template <int kTeam, int kItems, int kLanes, bool kStores, typename Index>
__global__ void
__launch_bounds__(op::kScanThreads<kTeam, kLanes, k1_cast_cumsum_folds0>,
    op::kScanBlocks<kTeam, kLanes, k1_cast_cumsum_folds0, Index>)
k1_cast_cumsum_contiguous_kernel(
    const op::bfloat16* __restrict__ x, op::bfloat16* __restrict__ result, Index num_rows,
    Index length) {
  constexpr int kColumns = op::kScanThreads<kTeam, kLanes, k1_cast_cumsum_folds0> / kTeam;
  const Index row = (Index(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kLanes;
  const bool inside = row < num_rows;
  const Index first = 0, last = length;
  const op::ScanAcross<kTeam, kColumns, kItems, kLanes, true, true, Index> scan(
      first, last, length, inside);
  k1_cast_cumsum_carry carry[kLanes];
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    carry[lane] = k1_cast_cumsum_carry::nothing();
  }
  const auto load = [&](Index at) {
    return k1_cast_cumsum_contiguous_load<kLanes>(x, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cast_cumsum_contiguous_scanned<kLanes>(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cast_cumsum_contiguous_after<kLanes>(result, row, at, packet, known);
  };
  scan.template walk<k1_cast_cumsum_folds0, k1_cast_cumsum_known, kStores,
      k1_cast_cumsum_contiguous_packet<kLanes>>(carry, load, scanned, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cast_cumsum_contiguous_launch(
    const void* x, void* result, int64_t num_rows, int64_t length, cudaStream_t stream) {
  constexpr int kThreads = op::kScanThreads<kTeam, kLanes, k1_cast_cumsum_folds0>;
  constexpr int64_t kRows = kThreads / kTeam * kLanes;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_cast_cumsum_contiguous_kernel<kTeam, kItems, kLanes, true, Index>;
  kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const op::bfloat16*>(x), static_cast<op::bfloat16*>(result), Index(num_rows),
      Index(length));
}

static int k1_cast_cumsum_contiguous(
    const void* x, void* result, int64_t s0, int64_t num_rows, int64_t length, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_cast_cumsum_contiguous_launch<8, 1, 1, uint64_t>;
  if (aligned && num_rows % 8 == 0 && num_rows >= 16384) {
    if (narrow) {
      launch = k1_cast_cumsum_contiguous_launch<8, 2, 8, uint32_t>;
    } else {
      launch = k1_cast_cumsum_contiguous_launch<8, 1, 8, uint64_t>;
    }
  } else if (narrow) {
    launch = k1_cast_cumsum_contiguous_launch<8, 8, 1, uint32_t>;
    if (num_rows < 16384
        && length > 64) launch = k1_cast_cumsum_contiguous_launch<32, 8, 1, uint32_t>;
    if (num_rows >= 32768) launch = k1_cast_cumsum_contiguous_launch<4, 8, 1, uint32_t>;
    if (num_rows >= 270336) launch = k1_cast_cumsum_contiguous_launch<1, 8, 1, uint32_t>;
  }
  launch(x, result, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

// What the pass reads of a packet.
template <int kLanes>
struct k1_cast_cumsum_strided_packet {
  float x_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_cast_cumsum_strided_packet<kLanes>
k1_cast_cumsum_strided_load(
    const op::bfloat16* __restrict__ x, Index x_stride0, Index x_stride1, Index x_stride2,
    Index row, Index at) {
  k1_cast_cumsum_strided_packet<kLanes> packet;
  const Index r1 = at;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_row = row + lane;
    const Index i2 = lane_row % 16u;
    const Index i0 = lane_row / 16u;
    const float x_1 = op::to_compute(x[i0 * x_stride0 + i2 * x_stride2 + r1 * x_stride1]);
    packet.x_1[lane] = x_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cast_cumsum_strided_scanned(
    Index row, Index at, const k1_cast_cumsum_strided_packet<kLanes>& packet,
    k1_cast_cumsum_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cast_cumsum_scanned(packet.x_1[lane]);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cast_cumsum_strided_after(
    op::bfloat16* __restrict__ result, Index result_stride0, Index result_stride1,
    Index result_stride2, Index row, Index at, const k1_cast_cumsum_strided_packet<kLanes>& packet,
    const k1_cast_cumsum_known (&known)[kLanes]) {
  const Index r1 = at;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_row = row + lane;
    const Index i2 = lane_row % 16u;
    const Index i0 = lane_row / 16u;
    const float value0 = k1_cast_cumsum_after(known[lane].cumsum_1);
    result[i0 * result_stride0 + i2 * result_stride2
        + r1 * result_stride1] = op::from_compute<op::bfloat16>(value0);
  }
}

template <int kTeam, int kItems, int kLanes, bool kStores, typename Index>
__global__ void
__launch_bounds__(op::kScanThreads<kTeam, kLanes, k1_cast_cumsum_folds0>,
    op::kScanBlocks<kTeam, kLanes, k1_cast_cumsum_folds0, Index>)
k1_cast_cumsum_strided_kernel(
    const op::bfloat16* __restrict__ x, op::bfloat16* __restrict__ result, Index x_stride0,
    Index x_stride1, Index x_stride2, Index result_stride0, Index result_stride1,
    Index result_stride2, Index num_rows, Index length) {
  constexpr int kColumns = op::kScanThreads<kTeam, kLanes, k1_cast_cumsum_folds0> / kTeam;
  const Index row = (Index(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kLanes;
  const bool inside = row < num_rows;
  const Index first = 0, last = length;
  const op::ScanAcross<kTeam, kColumns, kItems, kLanes, true, true, Index> scan(
      first, last, length, inside);
  k1_cast_cumsum_carry carry[kLanes];
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    carry[lane] = k1_cast_cumsum_carry::nothing();
  }
  const auto load = [&](Index at) {
    return k1_cast_cumsum_strided_load<kLanes>(x, x_stride0, x_stride1, x_stride2, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cast_cumsum_strided_scanned<kLanes>(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cast_cumsum_strided_after<kLanes>(
        result, result_stride0, result_stride1, result_stride2, row, at, packet, known);
  };
  scan.template walk<k1_cast_cumsum_folds0, k1_cast_cumsum_known, kStores,
      k1_cast_cumsum_strided_packet<kLanes>>(carry, load, scanned, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cast_cumsum_strided_launch(
    const void* x, void* result, int64_t x_stride0, int64_t x_stride1, int64_t x_stride2,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t num_rows,
    int64_t length, cudaStream_t stream) {
  constexpr int kThreads = op::kScanThreads<kTeam, kLanes, k1_cast_cumsum_folds0>;
  constexpr int64_t kRows = kThreads / kTeam * kLanes;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_cast_cumsum_strided_kernel<kTeam, kItems, kLanes, true, Index>;
  kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const op::bfloat16*>(x), static_cast<op::bfloat16*>(result), Index(x_stride0),
      Index(x_stride1), Index(x_stride2), Index(result_stride0), Index(result_stride1),
      Index(result_stride2), Index(num_rows), Index(length));
}

static int k1_cast_cumsum_strided(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t num_rows, int64_t length, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_cast_cumsum_strided_launch<8, 1, 1, uint64_t>;
  if (narrow) {
    launch = k1_cast_cumsum_strided_launch<8, 8, 1, uint32_t>;
    if (num_rows < 16384 && length > 64) launch = k1_cast_cumsum_strided_launch<32, 8, 1, uint32_t>;
    if (num_rows >= 32768) launch = k1_cast_cumsum_strided_launch<4, 8, 1, uint32_t>;
    if (num_rows >= 270336) launch = k1_cast_cumsum_strided_launch<1, 8, 1, uint32_t>;
  }
  launch(
      x, result, x_stride0, x_stride1, x_stride2, result_stride0, result_stride1, result_stride2,
      num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_cast_cumsum_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &result = operands[1];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<op::bfloat16>, {s0, 9, 16}},
                                     {op::type_of<op::bfloat16>, {s0, 9, 16}}});
  const int64_t num_rows = s0 * 16;
  const int64_t length = 9;
  if (call.misfit || num_rows == 0) return call.misfit;
  if (call.contiguous) {
    return k1_cast_cumsum_contiguous(
      x.data, result.data, s0, num_rows, length, call.reach, call.aligned, stream);
  }
  return k1_cast_cumsum_strided(
      x.data, result.data, s0, x.strides[0], x.strides[1], x.strides[2], result.strides[0],
      result.strides[1], result.strides[2], num_rows, length, call.reach, call.aligned, stream);
}
