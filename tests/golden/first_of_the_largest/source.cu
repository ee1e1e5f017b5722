// k1_amax: one operation on rows of 48 elements in one walk.
// x f16[3, s0, 16] -> result f16[1, s0, 1]

OPWELD_FN float k1_amax_walk0(float x_1) {
  return x_1;
}

OPWELD_FN float k1_amax_once0(float amax_1) {
  return amax_1;
}

// What is known of a row after its walks.
struct k1_amax_known {
  float amax_1;
};

// What walk 0 folds.
struct k1_amax_folds0 {
  static constexpr int kChain = 16;
  float amax_1;

  OPWELD_FN k1_amax_folds0 nothing() {
    return {op::Amax::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    amax_1 = op::Amax::combine(amax_1, value0);
  }
  __device__ __forceinline__ void merge(const k1_amax_folds0& other) {
    amax_1 = op::Amax::combine(amax_1, other.amax_1);
  }
  __device__ __forceinline__ void tell(k1_amax_known& row) const {
    row.amax_1 = amax_1;
  }
};

extern "C" int64_t k1_amax_pieces(int64_t num_rows, int64_t length) {
  return op::pieces_for(num_rows, num_rows, length, 4096, 64);
}

extern "C" int64_t k1_amax_partial_bytes() {
  return sizeof(k1_amax_folds0);
}

// What the walk reads of a packet.
template <int kLanes>
struct k1_amax_contiguous_packet {
  op::Vector<op::half, kLanes> x_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_amax_contiguous_packet<kLanes>
k1_amax_contiguous_load(const op::half* __restrict__ x, Index s0, Index row, Index at) {
  k1_amax_contiguous_packet<kLanes> packet;
  const Index i = row;
  const Index r1 = at % 16u;
  const Index r0 = at / 16u;
  packet.x_1 = op::load_vector<kLanes>(&x[r0 * s0 * 16u + i * 16u + r1]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_amax_contiguous_walk0(
    Index row, Index at, const k1_amax_contiguous_packet<kLanes>& packet,
    const k1_amax_known& known, k1_amax_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_amax_walk0(op::to_compute(packet.x_1.lane[lane]));
    folds[lane].add(value0);
  }
}

template <typename Index>
OPWELD_FN void k1_amax_contiguous_once0(
    op::half* __restrict__ result, Index row, bool stores, k1_amax_known& known) {
  const Index i = row;
  const float value0 = k1_amax_once0(known.amax_1);
  if (stores) {
    result[i] = op::from_compute<op::half>(value0);
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_amax_contiguous_kernel(
    const op::half* __restrict__ x, op::half* __restrict__ result, Index s0, Index num_rows,
    Index length, Index piece, k1_amax_folds0* __restrict__ partials) {
  op::wait_for_results();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = blockIdx.y * piece;
  const Index last = first + piece < length ? first + piece : length;
  k1_amax_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k1_amax_contiguous_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k1_amax_contiguous_load<kLanes>(x, s0, row, at);
  };
  walks.hold(load);

  k1_amax_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_amax_contiguous_walk0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  if (gridDim.y > 1) {
    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;
    return;
  }
  row_folds0.tell(known);
  k1_amax_contiguous_once0(result, row, rank == 0, known);
}

template <int kThreads, typename Index>
__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)
k1_amax_contiguous_finish_kernel(
    op::half* __restrict__ result, Index num_rows, Index pieces,
    const k1_amax_folds0* __restrict__ partials, int columns) {
  op::wait_for_results();
  const Index strip = threadIdx.x / columns, strips = kThreads / columns;
  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
  const bool inside = row < num_rows;
  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);
  const auto load = [](Index) { return op::NoPacket(); };
  k1_amax_folds0 row_folds[1];
  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {
    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);
  });
  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);
  if (!inside || strip > 0) return;
  k1_amax_known known;
  merged.tell(known);
  k1_amax_contiguous_once0(result, row, true, known);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_amax_contiguous_launch(
    const void* x, void* result, int64_t s0, int64_t num_rows, int64_t length, int64_t pieces,
    void* partials, cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const int64_t piece = op::piece_of(length, pieces, kLanes);
  const auto kernel = k1_amax_contiguous_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks, pieces), kThreads, 0, stream, static_cast<const op::half*>(x),
      static_cast<op::half*>(result), Index(s0), Index(num_rows), Index(length), Index(piece),
      static_cast<k1_amax_folds0*>(partials));
}

template <typename Index>
static void k1_amax_contiguous_finish(
    void* result, int64_t num_rows, int64_t pieces, const void* partials, cudaStream_t stream) {
  constexpr int kThreads = 1024;
  const int columns = op::merged_columns<kThreads>(num_rows, pieces);
  const unsigned int blocks = (num_rows + columns - 1) / columns;
  const auto kernel = k1_amax_contiguous_finish_kernel<kThreads, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<op::half*>(result), Index(num_rows),
      Index(pieces), static_cast<const k1_amax_folds0*>(partials), columns);
}

extern "C" int k1_amax_contiguous(
    const void* x, void* result, int64_t s0, int64_t num_rows, int64_t length, int64_t pieces,
    void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_amax_contiguous_launch<32, 0, 1, uint64_t>;
  if (aligned && length % 8 == 0) {
    if (narrow) {
      launch = k1_amax_contiguous_launch<8, 0, 8, uint32_t>;
    } else {
      launch = k1_amax_contiguous_launch<32, 0, 8, uint64_t>;
    }
  } else if (narrow) {
    launch = k1_amax_contiguous_launch<32, 0, 1, uint32_t>;
  }
  launch(x, result, s0, num_rows, length, pieces, partials, static_cast<cudaStream_t>(stream));
  if (pieces > 1) {
    auto finish = narrow ? k1_amax_contiguous_finish<uint32_t>
        : k1_amax_contiguous_finish<uint64_t>;
    finish(result, num_rows, pieces, partials, static_cast<cudaStream_t>(stream));
  }
  return int(cudaGetLastError());
}

// What the walk reads of a packet.
template <int kLanes>
struct k1_amax_strided_packet {
  float x_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_amax_strided_packet<kLanes>
k1_amax_strided_load(
    const op::half* __restrict__ x, Index x_stride0, Index x_stride1, Index x_stride2, Index row,
    Index at) {
  k1_amax_strided_packet<kLanes> packet;
  const Index i1 = row;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r2 = lane_at % 16u;
    const Index r0 = lane_at / 16u;
    const float x_1 = op::to_compute(x[i1 * x_stride1 + r0 * x_stride0 + r2 * x_stride2]);
    packet.x_1[lane] = x_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_amax_strided_walk0(
    Index row, Index at, const k1_amax_strided_packet<kLanes>& packet, const k1_amax_known& known,
    k1_amax_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_amax_walk0(packet.x_1[lane]);
    folds[lane].add(value0);
  }
}

template <typename Index>
OPWELD_FN void k1_amax_strided_once0(
    op::half* __restrict__ result, Index result_stride1, Index row, bool stores,
    k1_amax_known& known) {
  const Index i1 = row;
  const float value0 = k1_amax_once0(known.amax_1);
  if (stores) {
    result[i1 * result_stride1] = op::from_compute<op::half>(value0);
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_amax_strided_kernel(
    const op::half* __restrict__ x, op::half* __restrict__ result, Index x_stride0, Index x_stride1,
    Index x_stride2, Index result_stride1, Index num_rows, Index length, Index piece,
    k1_amax_folds0* __restrict__ partials) {
  op::wait_for_results();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = blockIdx.y * piece;
  const Index last = first + piece < length ? first + piece : length;
  k1_amax_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k1_amax_strided_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k1_amax_strided_load<kLanes>(x, x_stride0, x_stride1, x_stride2, row, at);
  };
  walks.hold(load);

  k1_amax_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_amax_strided_walk0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  if (gridDim.y > 1) {
    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;
    return;
  }
  row_folds0.tell(known);
  k1_amax_strided_once0(result, result_stride1, row, rank == 0, known);
}

template <int kThreads, typename Index>
__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)
k1_amax_strided_finish_kernel(
    op::half* __restrict__ result, Index result_stride1, Index num_rows, Index pieces,
    const k1_amax_folds0* __restrict__ partials, int columns) {
  op::wait_for_results();
  const Index strip = threadIdx.x / columns, strips = kThreads / columns;
  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
  const bool inside = row < num_rows;
  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);
  const auto load = [](Index) { return op::NoPacket(); };
  k1_amax_folds0 row_folds[1];
  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {
    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);
  });
  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);
  if (!inside || strip > 0) return;
  k1_amax_known known;
  merged.tell(known);
  k1_amax_strided_once0(result, result_stride1, row, true, known);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_amax_strided_launch(
    const void* x, void* result, int64_t x_stride0, int64_t x_stride1, int64_t x_stride2,
    int64_t result_stride1, int64_t num_rows, int64_t length, int64_t pieces, void* partials,
    cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const int64_t piece = op::piece_of(length, pieces, kLanes);
  const auto kernel = k1_amax_strided_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks, pieces), kThreads, 0, stream, static_cast<const op::half*>(x),
      static_cast<op::half*>(result), Index(x_stride0), Index(x_stride1), Index(x_stride2),
      Index(result_stride1), Index(num_rows), Index(length), Index(piece),
      static_cast<k1_amax_folds0*>(partials));
}

template <typename Index>
static void k1_amax_strided_finish(
    void* result, int64_t result_stride1, int64_t num_rows, int64_t pieces, const void* partials,
    cudaStream_t stream) {
  constexpr int kThreads = 1024;
  const int columns = op::merged_columns<kThreads>(num_rows, pieces);
  const unsigned int blocks = (num_rows + columns - 1) / columns;
  const auto kernel = k1_amax_strided_finish_kernel<kThreads, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<op::half*>(result),
      Index(result_stride1), Index(num_rows), Index(pieces),
      static_cast<const k1_amax_folds0*>(partials), columns);
}

extern "C" int k1_amax_strided(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride1, int64_t num_rows, int64_t length, int64_t pieces,
    void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_amax_strided_launch<32, 0, 1, uint64_t>;
  if (narrow) {
    launch = k1_amax_strided_launch<32, 0, 1, uint32_t>;
  }
  launch(
      x, result, x_stride0, x_stride1, x_stride2, result_stride1, num_rows, length, pieces,
      partials, static_cast<cudaStream_t>(stream));
  if (pieces > 1) {
    auto finish = narrow ? k1_amax_strided_finish<uint32_t> : k1_amax_strided_finish<uint64_t>;
    finish(result, result_stride1, num_rows, pieces, partials, static_cast<cudaStream_t>(stream));
  }
  return int(cudaGetLastError());
}

// k2_argmax: one operation on rows of 16 elements in one walk.
// x f16[3, s0, 16] -> result i64[3, s0, 1]

OPWELD_FN float k2_argmax_walk0(float x_1) {
  return x_1;
}

OPWELD_FN int64_t k2_argmax_once0(int64_t argmax_1) {
  return argmax_1;
}

// What is known of a row after its walks.
struct k2_argmax_known {
  int64_t argmax_1;
};

// What walk 0 folds.
struct k2_argmax_folds0 {
  static constexpr int kChain = op::NoFolds::kChain;
  op::Placed<float, int32_t> argmax_1;

  OPWELD_FN k2_argmax_folds0 nothing() {
    return {op::Argmax::identity<float, int32_t>()};
  }
  __device__ __forceinline__ void add(float value0, int32_t position) {
    argmax_1 = op::Argmax::follow(argmax_1, op::Placed<float, int32_t>{value0, position});
  }
  __device__ __forceinline__ void merge(const k2_argmax_folds0& other) {
    argmax_1 = op::Argmax::combine(argmax_1, other.argmax_1);
  }
  __device__ __forceinline__ void tell(k2_argmax_known& row) const {
    row.argmax_1 = argmax_1.position;
  }
};

extern "C" int64_t k2_argmax_pieces(int64_t num_rows, int64_t length) {
  return op::pieces_for(num_rows, num_rows, length, 4096, 64);
}

extern "C" int64_t k2_argmax_partial_bytes() {
  return sizeof(k2_argmax_folds0);
}

// What the walk reads of a packet.
template <int kLanes>
struct k2_argmax_contiguous_packet {
  op::Vector<op::half, kLanes> x_1;
};

template <int kLanes, typename Index>
OPWELD_FN k2_argmax_contiguous_packet<kLanes>
k2_argmax_contiguous_load(const op::half* __restrict__ x, Index row, Index at) {
  k2_argmax_contiguous_packet<kLanes> packet;
  const Index i = row;
  const Index r = at;
  packet.x_1 = op::load_vector<kLanes>(&x[i * 16u + r]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k2_argmax_contiguous_walk0(
    Index row, Index at, const k2_argmax_contiguous_packet<kLanes>& packet,
    const k2_argmax_known& known, k2_argmax_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k2_argmax_walk0(op::to_compute(packet.x_1.lane[lane]));
    folds[lane].add(value0, at + lane);
  }
}

template <typename Index>
OPWELD_FN void k2_argmax_contiguous_once0(
    int64_t* __restrict__ result, Index row, bool stores, k2_argmax_known& known) {
  const Index i = row;
  const int64_t value0 = k2_argmax_once0(known.argmax_1);
  if (stores) {
    result[i] = value0;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k2_argmax_contiguous_kernel(
    const op::half* __restrict__ x, int64_t* __restrict__ result, Index num_rows, Index length,
    Index piece, k2_argmax_folds0* __restrict__ partials) {
  op::wait_for_results();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = blockIdx.y * piece;
  const Index last = first + piece < length ? first + piece : length;
  k2_argmax_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k2_argmax_contiguous_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k2_argmax_contiguous_load<kLanes>(x, row, at);
  };
  walks.hold(load);

  k2_argmax_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k2_argmax_contiguous_walk0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  if (gridDim.y > 1) {
    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;
    return;
  }
  row_folds0.tell(known);
  k2_argmax_contiguous_once0(result, row, rank == 0, known);
}

template <int kThreads, typename Index>
__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)
k2_argmax_contiguous_finish_kernel(
    int64_t* __restrict__ result, Index num_rows, Index pieces,
    const k2_argmax_folds0* __restrict__ partials, int columns) {
  op::wait_for_results();
  const Index strip = threadIdx.x / columns, strips = kThreads / columns;
  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
  const bool inside = row < num_rows;
  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);
  const auto load = [](Index) { return op::NoPacket(); };
  k2_argmax_folds0 row_folds[1];
  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {
    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);
  });
  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);
  if (!inside || strip > 0) return;
  k2_argmax_known known;
  merged.tell(known);
  k2_argmax_contiguous_once0(result, row, true, known);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k2_argmax_contiguous_launch(
    const void* x, void* result, int64_t num_rows, int64_t length, int64_t pieces, void* partials,
    cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const int64_t piece = op::piece_of(length, pieces, kLanes);
  const auto kernel = k2_argmax_contiguous_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks, pieces), kThreads, 0, stream, static_cast<const op::half*>(x),
      static_cast<int64_t*>(result), Index(num_rows), Index(length), Index(piece),
      static_cast<k2_argmax_folds0*>(partials));
}

template <typename Index>
static void k2_argmax_contiguous_finish(
    void* result, int64_t num_rows, int64_t pieces, const void* partials, cudaStream_t stream) {
  constexpr int kThreads = 1024;
  const int columns = op::merged_columns<kThreads>(num_rows, pieces);
  const unsigned int blocks = (num_rows + columns - 1) / columns;
  const auto kernel = k2_argmax_contiguous_finish_kernel<kThreads, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<int64_t*>(result), Index(num_rows),
      Index(pieces), static_cast<const k2_argmax_folds0*>(partials), columns);
}

extern "C" int k2_argmax_contiguous(
    const void* x, void* result, int64_t s0, int64_t num_rows, int64_t length, int64_t pieces,
    void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k2_argmax_contiguous_launch<32, 0, 1, uint64_t>;
  if (aligned && length % 8 == 0) {
    if (narrow) {
      launch = k2_argmax_contiguous_launch<8, 0, 8, uint32_t>;
    } else {
      launch = k2_argmax_contiguous_launch<32, 0, 8, uint64_t>;
    }
  } else if (narrow) {
    launch = k2_argmax_contiguous_launch<32, 0, 1, uint32_t>;
  }
  launch(x, result, num_rows, length, pieces, partials, static_cast<cudaStream_t>(stream));
  if (pieces > 1) {
    auto finish = narrow ? k2_argmax_contiguous_finish<uint32_t>
        : k2_argmax_contiguous_finish<uint64_t>;
    finish(result, num_rows, pieces, partials, static_cast<cudaStream_t>(stream));
  }
  return int(cudaGetLastError());
}

// What the walk reads of a packet.
template <int kLanes>
struct k2_argmax_strided_packet {
  float x_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k2_argmax_strided_packet<kLanes>
k2_argmax_strided_load(
    const op::half* __restrict__ x, Index s0, Index x_stride0, Index x_stride1, Index x_stride2,
    Index row, Index at) {
  k2_argmax_strided_packet<kLanes> packet;
  const Index i1 = row % s0;
  const Index i0 = row / s0;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r2 = lane_at;
    const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1 + r2 * x_stride2]);
    packet.x_1[lane] = x_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k2_argmax_strided_walk0(
    Index row, Index at, const k2_argmax_strided_packet<kLanes>& packet,
    const k2_argmax_known& known, k2_argmax_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k2_argmax_walk0(packet.x_1[lane]);
    folds[lane].add(value0, at + lane);
  }
}

template <typename Index>
OPWELD_FN void k2_argmax_strided_once0(
    int64_t* __restrict__ result, Index s0, Index result_stride0, Index result_stride1, Index row,
    bool stores, k2_argmax_known& known) {
  const Index i1 = row % s0;
  const Index i0 = row / s0;
  const int64_t value0 = k2_argmax_once0(known.argmax_1);
  if (stores) {
    result[i0 * result_stride0 + i1 * result_stride1] = value0;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k2_argmax_strided_kernel(
    const op::half* __restrict__ x, int64_t* __restrict__ result, Index s0, Index x_stride0,
    Index x_stride1, Index x_stride2, Index result_stride0, Index result_stride1, Index num_rows,
    Index length, Index piece, k2_argmax_folds0* __restrict__ partials) {
  op::wait_for_results();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = blockIdx.y * piece;
  const Index last = first + piece < length ? first + piece : length;
  k2_argmax_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k2_argmax_strided_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k2_argmax_strided_load<kLanes>(x, s0, x_stride0, x_stride1, x_stride2, row, at);
  };
  walks.hold(load);

  k2_argmax_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k2_argmax_strided_walk0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  if (gridDim.y > 1) {
    if (rank == 0) partials[blockIdx.y * num_rows + row] = row_folds0;
    return;
  }
  row_folds0.tell(known);
  k2_argmax_strided_once0(result, s0, result_stride0, result_stride1, row, rank == 0, known);
}

template <int kThreads, typename Index>
__global__ void __launch_bounds__(kThreads, op::kLeastBlocks<kThreads, Index>)
k2_argmax_strided_finish_kernel(
    int64_t* __restrict__ result, Index s0, Index result_stride0, Index result_stride1,
    Index num_rows, Index pieces, const k2_argmax_folds0* __restrict__ partials, int columns) {
  op::wait_for_results();
  const Index strip = threadIdx.x / columns, strips = kThreads / columns;
  const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
  const bool inside = row < num_rows;
  const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
  const op::Walks<1, 1, 0, op::NoPacket, Index> walks(0, count);
  const auto load = [](Index) { return op::NoPacket(); };
  k2_argmax_folds0 row_folds[1];
  walks.walk(row_folds, load, [&](const auto&, Index at, auto& folds) {
    folds[0].merge(partials[(strip + at * strips) * num_rows + row]);
  });
  const auto merged = op::in_strips<kThreads>(row_folds[0], columns);
  if (!inside || strip > 0) return;
  k2_argmax_known known;
  merged.tell(known);
  k2_argmax_strided_once0(result, s0, result_stride0, result_stride1, row, true, known);
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k2_argmax_strided_launch(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t num_rows,
    int64_t length, int64_t pieces, void* partials, cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const int64_t piece = op::piece_of(length, pieces, kLanes);
  const auto kernel = k2_argmax_strided_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks, pieces), kThreads, 0, stream, static_cast<const op::half*>(x),
      static_cast<int64_t*>(result), Index(s0), Index(x_stride0), Index(x_stride1),
      Index(x_stride2), Index(result_stride0), Index(result_stride1), Index(num_rows),
      Index(length), Index(piece), static_cast<k2_argmax_folds0*>(partials));
}

template <typename Index>
static void k2_argmax_strided_finish(
    void* result, int64_t s0, int64_t result_stride0, int64_t result_stride1, int64_t num_rows,
    int64_t pieces, const void* partials, cudaStream_t stream) {
  constexpr int kThreads = 1024;
  const int columns = op::merged_columns<kThreads>(num_rows, pieces);
  const unsigned int blocks = (num_rows + columns - 1) / columns;
  const auto kernel = k2_argmax_strided_finish_kernel<kThreads, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<int64_t*>(result), Index(s0),
      Index(result_stride0), Index(result_stride1), Index(num_rows), Index(pieces),
      static_cast<const k2_argmax_folds0*>(partials), columns);
}

extern "C" int k2_argmax_strided(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t num_rows,
    int64_t length, int64_t pieces, void* partials, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k2_argmax_strided_launch<32, 0, 1, uint64_t>;
  if (narrow) {
    launch = k2_argmax_strided_launch<32, 0, 1, uint32_t>;
  }
  launch(
      x, result, s0, x_stride0, x_stride1, x_stride2, result_stride0, result_stride1, num_rows,
      length, pieces, partials, static_cast<cudaStream_t>(stream));
  if (pieces > 1) {
    auto finish = narrow ? k2_argmax_strided_finish<uint32_t> : k2_argmax_strided_finish<uint64_t>;
    finish(
        result, s0, result_stride0, result_stride1, num_rows, pieces, partials,
        static_cast<cudaStream_t>(stream));
  }
  return int(cudaGetLastError());
}
