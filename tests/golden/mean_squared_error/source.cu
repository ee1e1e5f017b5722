// k1_mul_sum_div: 4 operations on rows of s0 * 4096 elements in one walk, each cut in pieces that
//   run side by side.
// x f32[s0, 4096], y f32[s0, 4096] -> result f32[1, 1]

OPWELD_FN float k1_mul_sum_div_walk0(float x_1, float y_1) {
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

// What is known of a row after its walks.
struct k1_mul_sum_div_known {
  float sum_1;
};

// What walk 0 folds.
struct k1_mul_sum_div_folds0 {
  static constexpr int kChain = 8;
  float sum_1;

  OPWELD_FN k1_mul_sum_div_folds0 nothing() {
    return {op::Sum::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    sum_1 = op::Sum::combine(sum_1, value0);
  }
  __device__ __forceinline__ void merge(const k1_mul_sum_div_folds0& other) {
    sum_1 = op::Sum::combine(sum_1, other.sum_1);
  }
  __device__ __forceinline__ void tell(k1_mul_sum_div_known& row) const {
    row.sum_1 = sum_1;
  }
};

extern "C" int64_t k1_mul_sum_div_pieces(int64_t num_rows, int64_t length) {
  return op::pieces_for(num_rows, num_rows, length, 4096, 64);
}

extern "C" int64_t k1_mul_sum_div_partial_bytes() {
  return sizeof(k1_mul_sum_div_folds0);
}

// What the walk reads of a packet.
template <int kLanes>
struct k1_mul_sum_div_contiguous_packet {
  op::Vector<float, kLanes> x_1;
  op::Vector<float, kLanes> y_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_mul_sum_div_contiguous_packet<kLanes>
k1_mul_sum_div_contiguous_load(
    const float* __restrict__ x, const float* __restrict__ y, Index row, Index at) {
  k1_mul_sum_div_contiguous_packet<kLanes> packet;
  const Index r = at;
  packet.x_1 = op::load_vector<kLanes>(&x[r]);
  packet.y_1 = op::load_vector<kLanes>(&y[r]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_mul_sum_div_contiguous_walk0(
    Index row, Index at, const k1_mul_sum_div_contiguous_packet<kLanes>& packet,
    const k1_mul_sum_div_known& known, k1_mul_sum_div_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_mul_sum_div_walk0(packet.x_1.lane[lane], packet.y_1.lane[lane]);
    folds[lane].add(value0);
  }
}

template <typename Index>
OPWELD_FN void k1_mul_sum_div_contiguous_once0(
    float* __restrict__ result, Index s0, Index row, bool stores, k1_mul_sum_div_known& known) {
  const int64_t index_1 = int64_t(s0) * 4096;
  const float value0 = k1_mul_sum_div_once0(known.sum_1, index_1);
  if (stores) {
    result[0u] = value0;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_mul_sum_div_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result, Index s0,
    Index num_rows, Index length, Index piece, k1_mul_sum_div_folds0* __restrict__ partials) {
  op::wait_for_results();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = blockIdx.y * piece;
  const Index last = first + piece < length ? first + piece : length;
  k1_mul_sum_div_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k1_mul_sum_div_contiguous_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k1_mul_sum_div_contiguous_load<kLanes>(x, y, row, at);
  };
  walks.hold(load);

  k1_mul_sum_div_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_mul_sum_div_contiguous_walk0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  if (gridDim.y > 1) {
    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;
    return;
  }
  row_folds0.tell(known);
  k1_mul_sum_div_contiguous_once0(result, s0, row, rank == 0, known);
}

template <int kThreads, typename Index>
__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)
k1_mul_sum_div_contiguous_finish_kernel(
    float* __restrict__ result, Index s0, Index num_rows, Index pieces,
    const k1_mul_sum_div_folds0* __restrict__ partials, int columns) {
  op::wait_for_results();
  const Index strip = threadIdx.x / columns, strips = kThreads / columns;
  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
  const bool inside = row < num_rows;
  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);
  const auto load = [](Index) { return op::NoPacket(); };
  k1_mul_sum_div_folds0 row_folds[1];
  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {
    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);
  });
  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);
  if (!inside || strip > 0) return;
  k1_mul_sum_div_known known;
  merged.tell(known);
  k1_mul_sum_div_contiguous_once0(result, s0, row, true, known);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_mul_sum_div_contiguous_launch(
    const void* x, const void* y, void* result, int64_t s0, int64_t num_rows, int64_t length,
    int64_t pieces, void* partials, cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const int64_t piece = op::piece_of(length, pieces, kLanes);
  const auto kernel = k1_mul_sum_div_contiguous_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks, pieces), kThreads, 0, stream, static_cast<const float*>(x),
      static_cast<const float*>(y), static_cast<float*>(result), Index(s0), Index(num_rows),
      Index(length), Index(piece), static_cast<k1_mul_sum_div_folds0*>(partials));
}

template <typename Index>
static void k1_mul_sum_div_contiguous_finish(
    void* result, int64_t s0, int64_t num_rows, int64_t pieces, const void* partials,
    cudaStream_t stream) {
  constexpr int kThreads = 1024;
  const int columns = op::merged_columns<kThreads>(num_rows, pieces);
  const unsigned int blocks = (num_rows + columns - 1) / columns;
  const auto kernel = k1_mul_sum_div_contiguous_finish_kernel<kThreads, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<float*>(result), Index(s0),
      Index(num_rows), Index(pieces), static_cast<const k1_mul_sum_div_folds0*>(partials), columns);
}

extern "C" int k1_mul_sum_div_contiguous(
    const void* x, const void* y, void* result, int64_t s0, int64_t num_rows, int64_t length,
    int64_t pieces, void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_mul_sum_div_contiguous_launch<256, 0, 1, uint64_t>;
  if (aligned && length % 4 == 0) {
    if (narrow) {
      if (length / 4 <= 32) launch = k1_mul_sum_div_contiguous_launch<8, 0, 4, uint32_t>;
      else if (length / 4 <= 512) launch = k1_mul_sum_div_contiguous_launch<32, 0, 4, uint32_t>;
      else launch = k1_mul_sum_div_contiguous_launch<256, 0, 4, uint32_t>;
    } else {
      if (length / 4 <= 1024) launch = k1_mul_sum_div_contiguous_launch<32, 0, 4, uint64_t>;
      else launch = k1_mul_sum_div_contiguous_launch<256, 0, 4, uint64_t>;
    }
  } else if (narrow) {
    if (length <= 1024) launch = k1_mul_sum_div_contiguous_launch<32, 0, 1, uint32_t>;
    else launch = k1_mul_sum_div_contiguous_launch<256, 0, 1, uint32_t>;
  } else {
    if (length <= 1024) launch = k1_mul_sum_div_contiguous_launch<32, 0, 1, uint64_t>;
    else launch = k1_mul_sum_div_contiguous_launch<256, 0, 1, uint64_t>;
  }
  launch(x, y, result, s0, num_rows, length, pieces, partials, static_cast<cudaStream_t>(stream));
  if (pieces > 1) {
    auto finish = narrow ? k1_mul_sum_div_contiguous_finish<uint32_t>
        : k1_mul_sum_div_contiguous_finish<uint64_t>;
    finish(result, s0, num_rows, pieces, partials, static_cast<cudaStream_t>(stream));
  }
  return int(cudaGetLastError());
}

// What the walk reads of a packet.
template <int kLanes>
struct k1_mul_sum_div_strided_packet {
  float x_1[kLanes];
  float y_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_mul_sum_div_strided_packet<kLanes>
k1_mul_sum_div_strided_load(
    const float* __restrict__ x, const float* __restrict__ y, Index x_stride0, Index x_stride1,
    Index y_stride0, Index y_stride1, Index row, Index at) {
  k1_mul_sum_div_strided_packet<kLanes> packet;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r1 = lane_at % 4096u;
    const Index r0 = lane_at / 4096u;
    const float x_1 = x[r0 * x_stride0 + r1 * x_stride1];
    packet.x_1[lane] = x_1;
    const float y_1 = y[r0 * y_stride0 + r1 * y_stride1];
    packet.y_1[lane] = y_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_mul_sum_div_strided_walk0(
    Index row, Index at, const k1_mul_sum_div_strided_packet<kLanes>& packet,
    const k1_mul_sum_div_known& known, k1_mul_sum_div_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_mul_sum_div_walk0(packet.x_1[lane], packet.y_1[lane]);
    folds[lane].add(value0);
  }
}

template <typename Index>
OPWELD_FN void k1_mul_sum_div_strided_once0(
    float* __restrict__ result, Index s0, Index row, bool stores, k1_mul_sum_div_known& known) {
  const int64_t index_1 = int64_t(s0) * 4096;
  const float value0 = k1_mul_sum_div_once0(known.sum_1, index_1);
  if (stores) {
    result[0u] = value0;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_mul_sum_div_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result, Index s0,
    Index x_stride0, Index x_stride1, Index y_stride0, Index y_stride1, Index num_rows,
    Index length, Index piece, k1_mul_sum_div_folds0* __restrict__ partials) {
  op::wait_for_results();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = blockIdx.y * piece;
  const Index last = first + piece < length ? first + piece : length;
  k1_mul_sum_div_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k1_mul_sum_div_strided_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k1_mul_sum_div_strided_load<kLanes>(x, y, x_stride0, x_stride1, y_stride0, y_stride1,
        row, at);
  };
  walks.hold(load);

  k1_mul_sum_div_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_mul_sum_div_strided_walk0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  if (gridDim.y > 1) {
    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;
    return;
  }
  row_folds0.tell(known);
  k1_mul_sum_div_strided_once0(result, s0, row, rank == 0, known);
}

template <int kThreads, typename Index>
__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)
k1_mul_sum_div_strided_finish_kernel(
    float* __restrict__ result, Index s0, Index num_rows, Index pieces,
    const k1_mul_sum_div_folds0* __restrict__ partials, int columns) {
  op::wait_for_results();
  const Index strip = threadIdx.x / columns, strips = kThreads / columns;
  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
  const bool inside = row < num_rows;
  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);
  const auto load = [](Index) { return op::NoPacket(); };
  k1_mul_sum_div_folds0 row_folds[1];
  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {
    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);
  });
  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);
  if (!inside || strip > 0) return;
  k1_mul_sum_div_known known;
  merged.tell(known);
  k1_mul_sum_div_strided_once0(result, s0, row, true, known);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_mul_sum_div_strided_launch(
    const void* x, const void* y, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t y_stride0, int64_t y_stride1, int64_t num_rows, int64_t length, int64_t pieces,
    void* partials, cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const int64_t piece = op::piece_of(length, pieces, kLanes);
  const auto kernel = k1_mul_sum_div_strided_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks, pieces), kThreads, 0, stream, static_cast<const float*>(x),
      static_cast<const float*>(y), static_cast<float*>(result), Index(s0), Index(x_stride0),
      Index(x_stride1), Index(y_stride0), Index(y_stride1), Index(num_rows), Index(length),
      Index(piece), static_cast<k1_mul_sum_div_folds0*>(partials));
}

template <typename Index>
static void k1_mul_sum_div_strided_finish(
    void* result, int64_t s0, int64_t num_rows, int64_t pieces, const void* partials,
    cudaStream_t stream) {
  constexpr int kThreads = 1024;
  const int columns = op::merged_columns<kThreads>(num_rows, pieces);
  const unsigned int blocks = (num_rows + columns - 1) / columns;
  const auto kernel = k1_mul_sum_div_strided_finish_kernel<kThreads, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<float*>(result), Index(s0),
      Index(num_rows), Index(pieces), static_cast<const k1_mul_sum_div_folds0*>(partials), columns);
}

extern "C" int k1_mul_sum_div_strided(
    const void* x, const void* y, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t y_stride0, int64_t y_stride1, int64_t num_rows, int64_t length, int64_t pieces,
    void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_mul_sum_div_strided_launch<256, 0, 1, uint64_t>;
  if (narrow) {
    if (length <= 1024) launch = k1_mul_sum_div_strided_launch<32, 0, 1, uint32_t>;
    else launch = k1_mul_sum_div_strided_launch<256, 0, 1, uint32_t>;
  } else {
    if (length <= 1024) launch = k1_mul_sum_div_strided_launch<32, 0, 1, uint64_t>;
    else launch = k1_mul_sum_div_strided_launch<256, 0, 1, uint64_t>;
  }
  launch(
      x, y, result, s0, x_stride0, x_stride1, y_stride0, y_stride1, num_rows, length, pieces,
      partials, static_cast<cudaStream_t>(stream));
  if (pieces > 1) {
    auto finish = narrow ? k1_mul_sum_div_strided_finish<uint32_t>
        : k1_mul_sum_div_strided_finish<uint64_t>;
    finish(result, s0, num_rows, pieces, partials, static_cast<cudaStream_t>(stream));
  }
  return int(cudaGetLastError());
}
