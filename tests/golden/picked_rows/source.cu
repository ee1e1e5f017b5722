// k1_exp_sum_div: 6 operations on rows of 64 elements in 3 passes.
// table_weight f32[1, 100, 64], ids i64[s0, 8, 1] -> result f32[s0, 8, 64]

OPWELD_FN float k1_exp_sum_div_pass0(float table_weight_1) {
  return table_weight_1;
}

OPWELD_FN float k1_exp_sum_div_pass1(float table_weight_1, float amax_1) {
  // model.py:11 return torch.softmax(self.table(ids), -1)
  const float sub_1 = table_weight_1 - amax_1;
  const float exp_1 = op::exp(sub_1);
  return exp_1;
}

OPWELD_FN float k1_exp_sum_div_pass2(float table_weight_1, float amax_1, float sum_1) {
  // model.py:11 return torch.softmax(self.table(ids), -1)
  const float sub_1 = table_weight_1 - amax_1;
  const float exp_1 = op::exp(sub_1);
  const float div_1 = exp_1 / sum_1;
  return div_1;
}

// What is known of a row after its passes.
struct k1_exp_sum_div_known {
  float amax_1;
  float sum_1;
};

// What pass 0 folds.
struct k1_exp_sum_div_folds0 {
  static constexpr int kChain = 16;
  float amax_1;

  OPWELD_FN k1_exp_sum_div_folds0 nothing() {
    return {op::Amax::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    amax_1 = op::Amax::combine(amax_1, value0);
  }
  __device__ __forceinline__ void merge(const k1_exp_sum_div_folds0& other) {
    amax_1 = op::Amax::combine(amax_1, other.amax_1);
  }
  __device__ __forceinline__ void tell(k1_exp_sum_div_known& row) const {
    row.amax_1 = amax_1;
  }
};

// What pass 1 folds.
struct k1_exp_sum_div_folds1 {
  static constexpr int kChain = 8;
  float sum_1;

  OPWELD_FN k1_exp_sum_div_folds1 nothing() {
    return {op::Sum::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    sum_1 = op::Sum::combine(sum_1, value0);
  }
  __device__ __forceinline__ void merge(const k1_exp_sum_div_folds1& other) {
    sum_1 = op::Sum::combine(sum_1, other.sum_1);
  }
  __device__ __forceinline__ void tell(k1_exp_sum_div_known& row) const {
    row.sum_1 = sum_1;
  }
};

// What more than one pass reads of a packet.
template <int kLanes>
struct k1_exp_sum_div_contiguous_packet {
  op::Vector<float, kLanes> table_weight_1;
};

template <int kLanes, typename Index>
OPWELD_FN k1_exp_sum_div_contiguous_packet<kLanes>
k1_exp_sum_div_contiguous_load(
    const float* __restrict__ table_weight, const int64_t* __restrict__ ids, Index row, Index at) {
  k1_exp_sum_div_contiguous_packet<kLanes> packet;
  const Index i = row;
  const Index r = at;
  const int64_t ids_1 = ids[i];
  const Index place_1 = op::place_of(ids_1, 100);
  packet.table_weight_1 = op::load_vector<kLanes>(&table_weight[place_1 * 64u + r]);
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_sum_div_contiguous_pass0(
    Index row, Index at, const k1_exp_sum_div_contiguous_packet<kLanes>& packet,
    const k1_exp_sum_div_known& known, k1_exp_sum_div_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_exp_sum_div_pass0(packet.table_weight_1.lane[lane]);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_sum_div_contiguous_pass1(
    Index row, Index at, const k1_exp_sum_div_contiguous_packet<kLanes>& packet,
    const k1_exp_sum_div_known& known, k1_exp_sum_div_folds1 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_exp_sum_div_pass1(packet.table_weight_1.lane[lane], known.amax_1);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_sum_div_contiguous_pass2(
    float* __restrict__ result, Index row, Index at,
    const k1_exp_sum_div_contiguous_packet<kLanes>& packet, const k1_exp_sum_div_known& known,
    op::NoFolds (&folds)[kLanes]) {
  const Index i = row;
  const Index r = at;
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_exp_sum_div_pass2(
        packet.table_weight_1.lane[lane], known.amax_1, known.sum_1);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(&result[i * 64u + r], result_vector);
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_exp_sum_div_contiguous_kernel(
    const float* __restrict__ table_weight, const int64_t* __restrict__ ids,
    float* __restrict__ result, Index num_rows, Index length) {
  op::griddepcontrol_wait();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = 0, last = length;
  k1_exp_sum_div_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k1_exp_sum_div_contiguous_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k1_exp_sum_div_contiguous_load<kLanes>(table_weight, ids, row, at);
  };
  walks.hold(load);

  k1_exp_sum_div_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_exp_sum_div_contiguous_pass0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  row_folds0.tell(known);

  k1_exp_sum_div_folds1 folds1[kLanes];
  walks.walk(folds1, load, [&](const auto& packet, Index at, auto& folds) {
    k1_exp_sum_div_contiguous_pass1<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds1 = op::in_team<kTeam>(op::merged(folds1));
  row_folds1.tell(known);

  op::NoFolds folds2[kLanes];
  walks.walk(folds2, load, [&](const auto& packet, Index at, auto& folds) {
    k1_exp_sum_div_contiguous_pass2<kLanes>(result, row, at, packet, known, folds);
  });
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_exp_sum_div_contiguous_launch(
    const void* table_weight, const void* ids, void* result, int64_t num_rows, int64_t length,
    cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_exp_sum_div_contiguous_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<const float*>(table_weight),
      static_cast<const int64_t*>(ids), static_cast<float*>(result), Index(num_rows),
      Index(length));
}

static int k1_exp_sum_div_contiguous(
    const void* table_weight, const void* ids, void* result, int64_t s0, int64_t num_rows,
    int64_t length, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_exp_sum_div_contiguous_launch<32, 0, 1, uint64_t>;
  if (aligned && length % 4 == 0) {
    if (narrow) {
      launch = k1_exp_sum_div_contiguous_launch<8, 2, 4, uint32_t>;
    } else {
      launch = k1_exp_sum_div_contiguous_launch<32, 0, 4, uint64_t>;
    }
  } else if (narrow) {
    launch = k1_exp_sum_div_contiguous_launch<32, 0, 1, uint32_t>;
  }
  launch(table_weight, ids, result, num_rows, length, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

// What more than one pass reads of a packet.
template <int kLanes>
struct k1_exp_sum_div_strided_packet {
  float table_weight_1[kLanes];
};

template <int kLanes, typename Index>
OPWELD_FN k1_exp_sum_div_strided_packet<kLanes>
k1_exp_sum_div_strided_load(
    const float* __restrict__ table_weight, const int64_t* __restrict__ ids,
    Index table_weight_stride1, Index table_weight_stride2, Index ids_stride0, Index ids_stride1,
    Index row, Index at) {
  k1_exp_sum_div_strided_packet<kLanes> packet;
  const Index i1 = row % 8u;
  const Index i0 = row / 8u;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r2 = lane_at;
    const int64_t ids_1 = ids[i0 * ids_stride0 + i1 * ids_stride1];
    const Index place_1 = op::place_of(ids_1, 100);
    const float table_weight_1 = table_weight[place_1 * table_weight_stride1
        + r2 * table_weight_stride2];
    packet.table_weight_1[lane] = table_weight_1;
  }
  return packet;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_sum_div_strided_pass0(
    Index row, Index at, const k1_exp_sum_div_strided_packet<kLanes>& packet,
    const k1_exp_sum_div_known& known, k1_exp_sum_div_folds0 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_exp_sum_div_pass0(packet.table_weight_1[lane]);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_sum_div_strided_pass1(
    Index row, Index at, const k1_exp_sum_div_strided_packet<kLanes>& packet,
    const k1_exp_sum_div_known& known, k1_exp_sum_div_folds1 (&folds)[kLanes]) {
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_exp_sum_div_pass1(packet.table_weight_1[lane], known.amax_1);
    folds[lane].add(value0);
  }
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_sum_div_strided_pass2(
    float* __restrict__ result, Index result_stride0, Index result_stride1, Index result_stride2,
    Index row, Index at, const k1_exp_sum_div_strided_packet<kLanes>& packet,
    const k1_exp_sum_div_known& known, op::NoFolds (&folds)[kLanes]) {
  const Index i1 = row % 8u;
  const Index i0 = row / 8u;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index r2 = lane_at;
    const float value0 = k1_exp_sum_div_pass2(
        packet.table_weight_1[lane], known.amax_1, known.sum_1);
    result[i0 * result_stride0 + i1 * result_stride1 + r2 * result_stride2] = value0;
  }
}

template <int kTeam, int kItems, int kLanes, typename Index>
__global__ void __launch_bounds__(op::kTeamThreads<kTeam>, op::kTeamBlocks<kTeam, Index>)
k1_exp_sum_div_strided_kernel(
    const float* __restrict__ table_weight, const int64_t* __restrict__ ids,
    float* __restrict__ result, Index table_weight_stride1, Index table_weight_stride2,
    Index ids_stride0, Index ids_stride1, Index result_stride0, Index result_stride1,
    Index result_stride2, Index num_rows, Index length) {
  op::griddepcontrol_wait();
  const Index row = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
  if (row >= num_rows) return;
  const int rank = threadIdx.x % kTeam;
  const Index first = 0, last = length;
  k1_exp_sum_div_known known;
  op::Walks<kTeam * kLanes, kLanes, kItems, k1_exp_sum_div_strided_packet<kLanes>, Index> walks(
      first + rank * kLanes, last);
  const auto load = [&](Index at) {
    return k1_exp_sum_div_strided_load<kLanes>(
        table_weight, ids, table_weight_stride1,
        table_weight_stride2, ids_stride0, ids_stride1,
        row, at);
  };
  walks.hold(load);

  k1_exp_sum_div_folds0 folds0[kLanes];
  walks.walk(folds0, load, [&](const auto& packet, Index at, auto& folds) {
    k1_exp_sum_div_strided_pass0<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds0 = op::in_team<kTeam>(op::merged(folds0));
  row_folds0.tell(known);

  k1_exp_sum_div_folds1 folds1[kLanes];
  walks.walk(folds1, load, [&](const auto& packet, Index at, auto& folds) {
    k1_exp_sum_div_strided_pass1<kLanes>(row, at, packet, known, folds);
  });
  const auto row_folds1 = op::in_team<kTeam>(op::merged(folds1));
  row_folds1.tell(known);

  op::NoFolds folds2[kLanes];
  walks.walk(folds2, load, [&](const auto& packet, Index at, auto& folds) {
    k1_exp_sum_div_strided_pass2<kLanes>(
        result, result_stride0, result_stride1,
        result_stride2, row, at, packet, known, folds);
  });
}

template <int kTeam, int kItems, int kLanes, typename Index>
static void k1_exp_sum_div_strided_launch(
    const void* table_weight, const void* ids, void* result, int64_t table_weight_stride1,
    int64_t table_weight_stride2, int64_t ids_stride0, int64_t ids_stride1, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t num_rows, int64_t length,
    cudaStream_t stream) {
  constexpr int kThreads = op::kTeamThreads<kTeam>;
  constexpr int64_t kRows = kThreads / kTeam;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_exp_sum_div_strided_kernel<kTeam, kItems, kLanes, Index>;
  op::launch_early(
      kernel, dim3(blocks), kThreads, 0, stream, static_cast<const float*>(table_weight),
      static_cast<const int64_t*>(ids), static_cast<float*>(result), Index(table_weight_stride1),
      Index(table_weight_stride2), Index(ids_stride0), Index(ids_stride1), Index(result_stride0),
      Index(result_stride1), Index(result_stride2), Index(num_rows), Index(length));
}

static int k1_exp_sum_div_strided(
    const void* table_weight, const void* ids, void* result, int64_t s0,
    int64_t table_weight_stride1, int64_t table_weight_stride2, int64_t ids_stride0,
    int64_t ids_stride1, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t num_rows, int64_t length, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows * length < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = k1_exp_sum_div_strided_launch<32, 0, 1, uint64_t>;
  if (narrow) {
    launch = k1_exp_sum_div_strided_launch<32, 0, 1, uint32_t>;
  }
  launch(
      table_weight, ids, result, table_weight_stride1, table_weight_stride2, ids_stride0,
      ids_stride1, result_stride0, result_stride1, result_stride2, num_rows, length,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_exp_sum_div_launch(const TensorView* operands, void* stream) {
  const TensorView &table_weight = operands[0], &ids = operands[1], &result = operands[2];
  const int64_t s0 = ids.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {1, 100, 64}},
                                     {op::type_of<int64_t>, {s0, 8, 1}},
                                     {op::type_of<float>, {s0, 8, 64}}});
  const int64_t num_rows = s0 * 8;
  const int64_t length = 64;
  if (call.misfit || num_rows == 0) return call.misfit;
  if (call.contiguous) {
    return k1_exp_sum_div_contiguous(
      table_weight.data, ids.data, result.data, s0, num_rows, length, call.reach, call.aligned,
      stream);
  }
  return k1_exp_sum_div_strided(
      table_weight.data, ids.data, result.data, s0, table_weight.strides[1],
      table_weight.strides[2], ids.strides[0], ids.strides[1], result.strides[0], result.strides[1],
      result.strides[2], num_rows, length, call.reach, call.aligned, stream);
}
