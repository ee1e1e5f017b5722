// k1_cumsum: one operation on rows of 4194304 elements that are scanned in one pass, each split
//   over several blocks.
// x f32[4194304] -> result f32[4194304]

OPWELD_FN float k1_cumsum_scanned(float x_1) {
  return x_1;
}

OPWELD_FN float k1_cumsum_after(float cumsum_1) {
  return cumsum_1;
}

// What an element knows of the scans.
struct k1_cumsum_known {
  float cumsum_1;
};

// What is scanned.
struct k1_cumsum_folds0 {
  float cumsum_1;

  OPWELD_FN k1_cumsum_folds0 nothing() {
    return {op::Sum::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    *this = {value0};
  }
  __device__ __forceinline__ void follow(const k1_cumsum_folds0& later) {
    cumsum_1 = op::Sum::combine(cumsum_1, later.cumsum_1);
  }
  __device__ __forceinline__ void tell(k1_cumsum_known& element) const {
    element.cumsum_1 = cumsum_1;
  }
};

// What is carried along a row.
struct k1_cumsum_carry {
  op::CarriedSum<float> cumsum_1;

  OPWELD_FN k1_cumsum_carry nothing() {
    return {op::CarriedSum<float>::of(op::Sum::identity<float>())};
  }
  __device__ __forceinline__ void follow(const k1_cumsum_folds0& later) {
    cumsum_1.follow(later.cumsum_1);
  }
  __device__ __forceinline__ void follow(const k1_cumsum_carry& later) {
    cumsum_1.follow(later.cumsum_1);
  }
  __device__ __forceinline__ k1_cumsum_folds0
  told(const k1_cumsum_folds0& before) const {
    return {cumsum_1.told(before.cumsum_1)};
  }
  __device__ __forceinline__ k1_cumsum_folds0
  told(const k1_cumsum_folds0& before, const k1_cumsum_folds0& mine) const {
    return {cumsum_1.told(before.cumsum_1, mine.cumsum_1)};
  }
};

static int64_t k1_cumsum_pieces(int64_t num_rows, int64_t length) {
  return op::scan_pieces_for(num_rows, length, 8192, 4096);
}

static int64_t k1_cumsum_partial_bytes() {
  return 2 * sizeof(op::LookBack<k1_cumsum_carry, 32>::Slot);
}

// What the pass reads of a packet.
template <int kLanes>
struct k1_cumsum_contiguous_packet {
  op::Vector<float, kLanes> x_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_cumsum_contiguous_packet<kLanes>
k1_cumsum_contiguous_load(const float* __restrict__ x, Index row, Index at) {
  k1_cumsum_contiguous_packet<kLanes> packet;
  const Index r = at;
  packet.x_1 = op::load_vector<kLanes>(&x[r]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cumsum_contiguous_scanned(
    Index row, Index at, const k1_cumsum_contiguous_packet<kLanes>& packet,
    k1_cumsum_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cumsum_scanned(packet.x_1.lane[lane]);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cumsum_contiguous_after(
    float* __restrict__ result, Index row, Index at,
    const k1_cumsum_contiguous_packet<kLanes>& packet, const k1_cumsum_known (&known)[kLanes]) {
  const Index r = at;
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cumsum_after(known[lane].cumsum_1);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(&result[r], result_vector);
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_cumsum_contiguous_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index num_rows, Index length) {
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const op::ScanAlong<kTeam, kItems, kLanes, false, false, Index> scan(
      length / kLanes);
  k1_cumsum_carry carry = k1_cumsum_carry::nothing();
  const auto load = [&](Index at) {
    return k1_cumsum_contiguous_load<kLanes>(x, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cumsum_contiguous_scanned<kLanes>(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cumsum_contiguous_after<kLanes>(result, row, at, packet, known);
  };
  scan.template walk<k1_cumsum_folds0, k1_cumsum_known, k1_cumsum_contiguous_packet<kLanes>>(carry,
      load, scanned, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cumsum_contiguous_launch(
    const void* x, void* result, int64_t num_rows, int64_t length, cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_cumsum_contiguous_kernel<kTeam, kItems, kLanes, Index>;
  kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(num_rows), Index(length));
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void
__launch_bounds__(kTeam, op::kPieceBlocks<kTeam, kItems * kLanes, Index>)
k1_cumsum_contiguous_piece_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index num_rows, Index length,
    unsigned pieces, void* partials) {
  const op::LookBack<k1_cumsum_carry, kTeam> before(partials, pieces, num_rows);
  const unsigned block = before.block();
  const Index row = block % num_rows, piece = block / num_rows;
  const op::ScanPiece<kTeam, kItems, kLanes, false, false, false, Index> scan(
      piece * (kTeam * kItems), length);
  const auto load = [&](Index at, auto lanes) {
    return k1_cumsum_contiguous_load<decltype(lanes)::kCount>(x, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cumsum_contiguous_scanned(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cumsum_contiguous_after(result, row, at, packet, known);
  };
  const auto carried = [&](const k1_cumsum_carry& mine) {
    return before.carried(mine, row, piece);
  };
  scan.template walk<k1_cumsum_folds0, k1_cumsum_known,
      k1_cumsum_contiguous_packet<kLanes>, k1_cumsum_carry>(load, scanned, carried, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cumsum_contiguous_piece_launch(
    const void* x, void* result, int64_t num_rows, int64_t length, void* partials,
    cudaStream_t stream) {
  constexpr int64_t kPiece = kTeam * kItems * kLanes;
  const int64_t count = (length + kPiece - 1) / kPiece;
  const int64_t bytes = op::LookBack<k1_cumsum_carry, kTeam>::bytes(count, num_rows);
  cudaMemsetAsync(partials, 0, bytes, stream);
  const unsigned int blocks = num_rows * count;
  const auto kernel = k1_cumsum_contiguous_piece_kernel<kTeam, kItems, kLanes, Index>;
  kernel<<<blocks, kTeam, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(num_rows), Index(length),
      (unsigned int)count, partials);
}

static int k1_cumsum_contiguous(
    const void* x, void* result, int64_t num_rows, int64_t length, int64_t pieces, void* partials,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  if (pieces > 1) {
    auto in_pieces = narrow ? k1_cumsum_contiguous_piece_launch<256, 16, 1, uint32_t>
        : k1_cumsum_contiguous_piece_launch<256, 16, 1, uint64_t>;
    if (aligned && length % 4 == 0) {
      in_pieces = narrow ? k1_cumsum_contiguous_piece_launch<256, 16, 4, uint32_t>
          : k1_cumsum_contiguous_piece_launch<256, 16, 4, uint64_t>;
    }
    in_pieces(x, result, num_rows, length, partials, static_cast<cudaStream_t>(stream));
    return int(cudaGetLastError());
  }
  auto launch = k1_cumsum_contiguous_launch<256, 1, 1, uint64_t>;
  if (aligned && length % 4 == 0) {
    if (narrow) {
      launch = k1_cumsum_contiguous_launch<256, 1, 4, uint32_t>;
      if (num_rows < 1056
          && length > 4096) launch = k1_cumsum_contiguous_launch<1024, 1, 4, uint32_t>;
    } else {
      launch = k1_cumsum_contiguous_launch<256, 1, 4, uint64_t>;
    }
  } else if (narrow) {
    launch = k1_cumsum_contiguous_launch<256, 4, 1, uint32_t>;
    if (num_rows < 1056
        && length > 4096) launch = k1_cumsum_contiguous_launch<1024, 4, 1, uint32_t>;
  }
  launch(x, result, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

// What the pass reads of a packet.
template <int kLanes>
struct k1_cumsum_strided_packet {
  float x_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_cumsum_strided_packet<kLanes>
k1_cumsum_strided_load(const float* __restrict__ x, Index x_stride0, Index row, Index at) {
  k1_cumsum_strided_packet<kLanes> packet;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r0 = lane_at;
    const float x_1 = x[r0 * x_stride0];
    packet.x_1[lane] = x_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cumsum_strided_scanned(
    Index row, Index at, const k1_cumsum_strided_packet<kLanes>& packet,
    k1_cumsum_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_cumsum_scanned(packet.x_1[lane]);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cumsum_strided_after(
    float* __restrict__ result, Index result_stride0, Index row, Index at,
    const k1_cumsum_strided_packet<kLanes>& packet, const k1_cumsum_known (&known)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r0 = lane_at;
    const float value0 = k1_cumsum_after(known[lane].cumsum_1);
    result[r0 * result_stride0] = value0;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_cumsum_strided_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index x_stride0, Index result_stride0,
    Index num_rows, Index length) {
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const op::ScanAlong<kTeam, kItems, kLanes, false, false, Index> scan(
      length / kLanes);
  k1_cumsum_carry carry = k1_cumsum_carry::nothing();
  const auto load = [&](Index at) {
    return k1_cumsum_strided_load<kLanes>(x, x_stride0, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cumsum_strided_scanned<kLanes>(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cumsum_strided_after<kLanes>(result, result_stride0, row, at, packet, known);
  };
  scan.template walk<k1_cumsum_folds0, k1_cumsum_known, k1_cumsum_strided_packet<kLanes>>(carry,
      load, scanned, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cumsum_strided_launch(
    const void* x, void* result, int64_t x_stride0, int64_t result_stride0, int64_t num_rows,
    int64_t length, cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_cumsum_strided_kernel<kTeam, kItems, kLanes, Index>;
  kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(x_stride0),
      Index(result_stride0), Index(num_rows), Index(length));
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void
__launch_bounds__(kTeam, op::kPieceBlocks<kTeam, kItems * kLanes, Index>)
k1_cumsum_strided_piece_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index x_stride0, Index result_stride0,
    Index num_rows, Index length, unsigned pieces, void* partials) {
  const op::LookBack<k1_cumsum_carry, kTeam> before(partials, pieces, num_rows);
  const unsigned block = before.block();
  const Index row = block % num_rows, piece = block / num_rows;
  const op::ScanPiece<kTeam, kItems, kLanes, false, false, false, Index> scan(
      piece * (kTeam * kItems), length);
  const auto load = [&](Index at, auto lanes) {
    return k1_cumsum_strided_load<decltype(lanes)::kCount>(x, x_stride0, row, at);
  };
  const auto scanned = [&](Index at, const auto& packet, auto& folds) {
    k1_cumsum_strided_scanned(row, at, packet, folds);
  };
  const auto after = [&](Index at, const auto& packet, const auto& known) {
    k1_cumsum_strided_after(result, result_stride0, row, at, packet, known);
  };
  const auto carried = [&](const k1_cumsum_carry& mine) {
    return before.carried(mine, row, piece);
  };
  scan.template walk<k1_cumsum_folds0, k1_cumsum_known,
      k1_cumsum_strided_packet<kLanes>, k1_cumsum_carry>(load, scanned, carried, after);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_cumsum_strided_piece_launch(
    const void* x, void* result, int64_t x_stride0, int64_t result_stride0, int64_t num_rows,
    int64_t length, void* partials, cudaStream_t stream) {
  constexpr int64_t kPiece = kTeam * kItems * kLanes;
  const int64_t count = (length + kPiece - 1) / kPiece;
  const int64_t bytes = op::LookBack<k1_cumsum_carry, kTeam>::bytes(count, num_rows);
  cudaMemsetAsync(partials, 0, bytes, stream);
  const unsigned int blocks = num_rows * count;
  const auto kernel = k1_cumsum_strided_piece_kernel<kTeam, kItems, kLanes, Index>;
  kernel<<<blocks, kTeam, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(x_stride0),
      Index(result_stride0), Index(num_rows), Index(length), (unsigned int)count, partials);
}

static int k1_cumsum_strided(
    const void* x, void* result, int64_t x_stride0, int64_t result_stride0, int64_t num_rows,
    int64_t length, int64_t pieces, void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  if (pieces > 1) {
    auto in_pieces = narrow ? k1_cumsum_strided_piece_launch<256, 16, 1, uint32_t>
        : k1_cumsum_strided_piece_launch<256, 16, 1, uint64_t>;
    in_pieces(
        x, result, x_stride0, result_stride0, num_rows, length, partials,
        static_cast<cudaStream_t>(stream));
    return int(cudaGetLastError());
  }
  auto launch = k1_cumsum_strided_launch<256, 1, 1, uint64_t>;
  if (narrow) {
    launch = k1_cumsum_strided_launch<256, 4, 1, uint32_t>;
  }
  launch(x, result, x_stride0, result_stride0, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int64_t k1_cumsum_scratch(const TensorView* operands) {
  const int64_t num_rows = 1;
  const int64_t length = 4194304;
  return k1_cumsum_pieces(num_rows, length) * num_rows * k1_cumsum_partial_bytes();
}
extern "C" int k1_cumsum_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &result = operands[1];
  const op::Operands call(operands, {{op::type_of<float>, {4194304}},
                                     {op::type_of<float>, {4194304}}});
  const int64_t num_rows = 1;
  const int64_t length = 4194304;
  if (call.misfit || num_rows == 0) return call.misfit;
  const int64_t pieces = k1_cumsum_pieces(num_rows, length);
  if (call.contiguous) {
    return k1_cumsum_contiguous(
      x.data, result.data, num_rows, length, pieces, operands[2].data, call.reach, call.aligned,
      stream);
  }
  return k1_cumsum_strided(
      x.data, result.data, x.strides[0], result.strides[0], num_rows, length, pieces,
      operands[2].data, call.reach, call.aligned, stream);
}
