// Rows scanned by threads together. What is scanned of an element is a struct `State` of the group:
//     static State nothing()             of no elements
//     void follow(const State& later)    takes in what comes next
//     void tell(Known& element) const    what an element knows
// and what the stretches of a row before have come to is a `Carry`, which follows states and others
// of its kind, and has State told(before) and told(before, mine), of what is known within a
// stretch. Every order is fixed by the shape of the launch.

namespace op {

// @Carried deps:
// What is carried of a fold that rounds as little as one of its elements does.
template <typename Fold, typename T>
struct Carried {
    T value;
    OPWELD_FN Carried of(T value) { return {value}; }
    __device__ __forceinline__ void follow(T later) { value = Fold::combine(value, later); }
    __device__ __forceinline__ void follow(Carried later) { follow(later.value); }
    __device__ __forceinline__ T told(T before) const { return Fold::combine(value, before); }
    __device__ __forceinline__ T told(T before, T mine) const {
        return Fold::combine(told(before), mine);
    }
};

// @CarriedSum deps:
// A sum of floats, and what its roundings lost (Knuth, The Art of Computer Programming 2, 4.2.2):
// it is rounded once for an element, however many stretches were before.
template <typename T>
struct CarriedSum {
    T value, lost;
    OPWELD_FN CarriedSum of(T value) { return {value, T(0)}; }
    __device__ __forceinline__ void follow(T later) {
        const T sum = value + later, part = sum - value;
        const T missing = (value - (sum - part)) + (later - part);
        lost += sum - sum == T(0) ? missing : T(0);  // of infinities nothing is missing
        value = sum;
    }
    __device__ __forceinline__ void follow(CarriedSum later) {
        follow(later.value);
        lost += later.lost;
    }
    __device__ __forceinline__ T told(T so_far) const { return value + (lost + so_far); }
    __device__ __forceinline__ T told(T before, T mine) const { return told(before + mine); }
};

// @LogSum deps: kInfinity, exp, log1p
// The logarithm of a sum of exponentials: of its largest term, and what the others come to beside
// that one. A logarithm is taken where a sum is asked for, none where two are added.
template <typename T>
struct LogSum {
    T largest, rest;
    OPWELD_FN LogSum nothing() { return {-kInfinity<T>, T(0)}; }
    // Infinities that are equal add up as numbers do; NaN goes into the rest.
    OPWELD_FN LogSum combine(LogSum a, LogSum b) {
        const bool grows = b.largest > a.largest;
        const LogSum high = grows ? b : a, low = grows ? a : b;
        const T below = low.largest == high.largest ? T(0) : low.largest - high.largest;
        return {high.largest, high.rest + op::exp(below) * (T(1) + low.rest)};
    }
    __device__ __forceinline__ T value() const { return largest + op::log1p(rest); }
};

// @shuffled_up deps:
// The value of the thread `lanes` before in its part of the warp, of kWidth threads.
template <int kWidth, typename T>
OPWELD_FN T shuffled_up(unsigned mask, const T& value, int lanes) {
    T other = value;
#pragma unroll
    for (int at = 0; at < int(sizeof(T)); at += 4) {
        const int bytes = int(sizeof(T)) - at < 4 ? int(sizeof(T)) - at : 4;
        unsigned word = 0;
        memcpy(&word, reinterpret_cast<const char*>(&value) + at, bytes);
        word = __shfl_up_sync(mask, word, lanes, kWidth);
        memcpy(reinterpret_cast<char*>(&other) + at, &word, bytes);
    }
    return other;
}

// @shuffled_from deps:
// The value of one thread in each part of the warp.
template <int kWidth, typename T>
OPWELD_FN T shuffled_from(unsigned mask, const T& value, int lane) {
    T other = value;
#pragma unroll
    for (int at = 0; at < int(sizeof(T)); at += 4) {
        const int bytes = int(sizeof(T)) - at < 4 ? int(sizeof(T)) - at : 4;
        unsigned word = 0;
        memcpy(&word, reinterpret_cast<const char*>(&value) + at, bytes);
        word = __shfl_sync(mask, word, lane, kWidth);
        memcpy(reinterpret_cast<char*>(&other) + at, &word, bytes);
    }
    return other;
}

// @team_mask deps:
// The threads of a warp that are one part of kWidth.
template <int kWidth>
OPWELD_FN unsigned team_mask() {
    return (0xffffffffu >> (32 - kWidth)) << (threadIdx.x % 32 / kWidth * kWidth);
}

// @scanned_in_warp deps: shuffled_up
// What the threads up to each one come to together, in parts of kWidth.
template <int kWidth, typename T>
OPWELD_FN T scanned_in_warp(unsigned mask, T mine) {
#pragma unroll
    for (int lanes = 1; lanes < kWidth; lanes *= 2) {
        T earlier = shuffled_up<kWidth>(mask, mine, lanes);
        earlier.follow(mine);
        if (threadIdx.x % kWidth >= lanes) mine = earlier;
    }
    return mine;
}

// @before_in_team deps: scanned_in_warp, shuffled_from, team_mask
// What the threads of a team before each one come to, and the whole team. The memory that warps
// share is used in turns, so that one barrier is enough.
template <int kTeam, typename T>
OPWELD_FN T before_in_team(const T& mine, T& whole, int turn) {
    constexpr int kWidth = kTeam < 32 ? kTeam : 32;
    const unsigned mask = team_mask<kWidth>();
    const T up_to = scanned_in_warp<kWidth>(mask, mine);
    T before = shuffled_up<kWidth>(mask, up_to, 1);
    if (threadIdx.x % kWidth == 0) before = T::nothing();
    if constexpr (kTeam <= 32) {
        whole = shuffled_from<kWidth>(mask, up_to, kWidth - 1);
    } else {
        constexpr int kWarps = kTeam / 32;
        __shared__ T of_warp[2][kWarps];
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 == 31) of_warp[turn][warp] = up_to;
        __syncthreads();
        const T up_to_warp = scanned_in_warp<kWarps>(mask, of_warp[turn][threadIdx.x % kWarps]);
        whole = shuffled_from<kWarps>(mask, up_to_warp, kWarps - 1);
        T earlier = shuffled_from<kWarps>(mask, up_to_warp, warp ? warp - 1 : 0);
        earlier.follow(before);
        if (warp) before = earlier;
    }
    return before;
}

// @LookBack deps: Told, before_in_team
// What is carried from piece to piece of rows, told by one block to the others while they run (the
// single pass of Merrill and Garland, NVR-2016-002). A block takes the next piece that no other
// has, so that whatever it waits for has begun. Pieces stand in groups: carried into one is what
// comes before its group and the pieces of the group before it, always added in the same order, so
// that results are the same in every run. Its memory, two slots for each piece of each row, begins
// as zeros.
template <typename Carry, int kTeam>
struct LookBack {
    static constexpr int kGroup = kTeam - 1;
    using Slot = Told<Carry>;
    Slot *pieces, *groups;  // [pieces, rows], [groups, rows]
    unsigned* next;
    int64_t rows;

    OPWELD_HOST_FN int64_t num_groups(int64_t pieces) { return (pieces + kGroup - 1) / kGroup; }
    // As there are two pieces or more, groups and the counter fit into the second slot of each.
    OPWELD_HOST_FN int64_t bytes(int64_t pieces, int64_t rows) {
        return ((pieces + num_groups(pieces)) * rows + 1) * int64_t(sizeof(Slot));
    }

    __device__ __forceinline__ LookBack(void* memory, int64_t num_pieces, int64_t rows)
        : pieces(static_cast<Slot*>(memory)),
          groups(pieces + num_pieces * rows),
          next(reinterpret_cast<unsigned*>(groups + num_groups(num_pieces) * rows)),
          rows(rows) {}

    // The number of this block, in the order in which blocks begin.
    __device__ __forceinline__ unsigned block() const {
        __shared__ unsigned taken;
        if (threadIdx.x == 0) taken = atomicAdd(next, 1u);
        __syncthreads();
        return taken;
    }

    // What is carried into a piece that comes to `mine`, for the kTeam threads of the block: the
    // first looks at the group before, each of the others at a piece.
    __device__ __forceinline__ Carry carried(const Carry& mine, int64_t row, int piece) const {
        const int group = piece / kGroup, earlier = piece % kGroup, rank = threadIdx.x;
        Slot *of_pieces = pieces + row, *of_groups = groups + row;
        if (rank == 0) Slot::tell(of_pieces + piece * rows, mine);
        const bool looks = rank == 0 ? group > 0 : rank <= earlier;
        const Slot* at = rank == 0 ? of_groups + (group - 1) * rows
                                   : of_pieces + (group * kGroup + rank - 1) * rows;
        Carry seen = Carry::nothing(), carry;
        if (looks) seen = told(at);
        before_in_team<kTeam>(seen, carry, 0);
        if (rank == 0 && earlier == kGroup - 1) {
            Carry up_to = carry;
            up_to.follow(mine);
            Slot::tell(of_groups + group * rows, up_to);
        }
        return carry;
    }

    // Waits until it is there.
    OPWELD_FN Carry told(const Slot* at) {
        Carry carry;
        while (!Slot::look(at, carry)) {
        }
        return carry;
    }
};

// @scan_pieces_for deps: pieces_for
// In how many pieces rows are scanned: in those of `piece` elements where a block a row would leave
// the device idle, and rows are of two times `least` elements.
static int64_t scan_pieces_for(int64_t num_rows, int64_t length, int64_t least, int64_t piece) {
    const bool idle = pieces_for(num_rows, num_rows, length, least, 8) > 1;
    return idle ? (length + piece - 1) / piece : 1;
}

// @scan_in_thread deps:
// Each of a thread's elements with those before it.
template <int kCount, typename State>
OPWELD_FN void scan_in_thread(State (&mine)[kCount]) {
#pragma unroll
    for (int k = 1; k < kCount; ++k) {
        State so_far = mine[k - 1];
        so_far.follow(mine[k]);
        mine[k] = so_far;
    }
}

// @tell_in_thread deps:
// What each of a thread's elements knows, of what is carried and of what is before in its stretch.
template <bool kExclusive, int kCount, typename State, typename Carry>
OPWELD_FN void tell_in_thread(State (&mine)[kCount], const State& before, const Carry& carry) {
#pragma unroll
    for (int k = kCount - 1; k >= 0; --k) {
        if (kExclusive) {
            mine[k] = k > 0 ? carry.told(before, mine[k - 1]) : carry.told(before);
        } else {
            mine[k] = carry.told(before, mine[k]);
        }
    }
}

// @exchange_in_warp deps: team_mask
// Elements k * kWidth + lane of a warp's part to lane * kItems + k, or back, through memory of its
// own that has one place more for each 32: neighbours of a thread are then in different banks.
template <int kWidth, bool kToNeighbours, int kItems, typename State>
OPWELD_FN void exchange_in_warp(State (&mine)[kItems], State* own) {
    const unsigned mask = team_mask<kWidth>();
    const int lane = threadIdx.x % kWidth;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        const int at = kToNeighbours ? k * kWidth + lane : lane * kItems + k;
        own[at + at / 32] = mine[k];
    }
    __syncwarp(mask);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        const int at = kToNeighbours ? lane * kItems + k : k * kWidth + lane;
        mine[k] = own[at + at / 32];
    }
    __syncwarp(mask);
}

// @ScanAlong deps: Team, before_in_team, exchange_in_warp, scan_in_thread, tell_in_thread
// A row that kTeam threads scan together, chunk by chunk: kItems packets of kLanes neighbours a
// thread, those of the next chunk under way while one is scanned. Packets are numbered as the scan
// goes. Threads of a warp have neighbouring packets; where these are several single elements, they
// pass through shared memory, so that a thread scans neighbours.
template <int kTeam, int kItems, int kLanes, bool kReverse, bool kExclusive, typename Index>
struct ScanAlong {
    static_assert(kItems == 1 || kLanes == 1, "several packets are single elements");
    static constexpr int kWidth = kTeam < 32 ? kTeam : 32;
    static constexpr int kCount = kItems * kLanes, kWarpItems = kWidth * kItems;
    static constexpr Index kChunk = kTeam * kItems;
    Index packets;  // of the row

    __device__ __forceinline__ explicit ScanAlong(Index packets) : packets(packets) {}

    __device__ __forceinline__ Index packet(Index chunk, int item) const {
        const int rank = threadIdx.x % kTeam;
        return chunk + rank / kWidth * kWarpItems + item * kWidth + rank % kWidth;
    }
    // The position of its first element in memory.
    __device__ __forceinline__ Index place(Index packet) const {
        return (kReverse ? packets - 1 - packet : packet) * kLanes;
    }

    template <typename Packet, typename Load>
    __device__ __forceinline__ void load_chunk(Packet (&loaded)[kItems], Index chunk,
                                               Load load) const {
#pragma unroll
        for (int item = 0; item < kItems; ++item) {
            const Index at = packet(chunk, item);
            if (at < packets) loaded[item] = load(place(at));
        }
    }

    // scanned(at, packet, states) gives what is scanned of a packet at `at`, and
    // after(at, packet, known) takes what its elements know.
    template <typename State, typename Known, typename Packet, typename Carry, typename Load,
              typename Scanned, typename After>
    __device__ __forceinline__ void walk(Carry& carry, Load load, Scanned scanned,
                                         After after) const {
        Packet next[kItems];
        load_chunk(next, 0, load);
        int turn = 0;
        for (Index chunk = 0; chunk < packets; chunk += kChunk) {
            Packet loaded[kItems];
#pragma unroll
            for (int item = 0; item < kItems; ++item) loaded[item] = next[item];
            if (packets - chunk > kChunk) load_chunk(next, chunk + kChunk, load);
            State mine[kCount];
#pragma unroll
            for (int item = 0; item < kItems; ++item) {
                State lanes[kLanes];
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = State::nothing();
                const Index at = packet(chunk, item);
                if (at < packets) scanned(place(at), loaded[item], lanes);
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) {
                    mine[item * kLanes + lane] = lanes[kReverse ? kLanes - 1 - lane : lane];
                }
            }
            exchange<true>(mine);
            scan_in_thread(mine);
            State whole;
            const State before = before_in_team<kTeam>(mine[kCount - 1], whole, turn);
            tell_in_thread<kExclusive>(mine, before, carry);
            exchange<false>(mine);
#pragma unroll
            for (int item = 0; item < kItems; ++item) {
                Known known[kLanes];
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) {
                    mine[item * kLanes + lane].tell(known[kReverse ? kLanes - 1 - lane : lane]);
                }
                const Index at = packet(chunk, item);
                if (at < packets) after(place(at), loaded[item], known);
            }
            carry.follow(whole);
            turn ^= 1;
        }
    }

    // A warp's own.
    template <typename State>
    OPWELD_FN State* places() {
        constexpr int kPlaces = kWarpItems + kWarpItems / 32;
        __shared__ State of_block[kTeamThreads<kTeam> / kWidth * kPlaces];
        return of_block + threadIdx.x / kWidth * kPlaces;
    }

    template <bool kToNeighbours, typename State>
    OPWELD_FN void exchange(State (&mine)[kCount]) {
        if constexpr (kItems > 1) exchange_in_warp<kWidth, kToNeighbours>(mine, places<State>());
    }
};

// @ScanPiece deps: LookBack, exchange_in_warp, scanned_in_warp, shuffled_from, scan_in_thread, tell_in_thread
// Blocks that a multiprocessor must hold: 85 registers a thread, 128 for wide indices or many
// elements.
template <int kTeam, int kElements, typename Index>
constexpr int kPieceBlocks = kTeam > 512
                                 ? 1
                                 : (sizeof(Index) > 4 || kElements > 32 ? 512 : 768) / kTeam;

// How many neighbours, for what is compiled for several.
template <int kNumber>
struct Lanes {
    static constexpr int kCount = kNumber;
};

// A piece of a row that a block of kTeam threads keeps in registers: kItems packets of kLanes
// neighbours a thread. Packets are numbered as the scan goes; those of a warp are neighbours.
// Single elements pass through shared memory, so that a thread scans neighbours; packets are
// scanned where they are, one of each thread after the other. With kRest, there may be elements
// behind the last whole packet of a row: they are taken one by one, with the last piece, or in
// reverse before the first.
template <int kTeam, int kItems, int kLanes, bool kReverse, bool kExclusive, bool kRest,
          typename Index>
struct ScanPiece {
    static constexpr int kWarps = kTeam / 32;
    static constexpr bool kPasses = kLanes == 1 && kItems > 1;
    // A thread's neighbours, and how often it has some.
    static constexpr int kRun = kPasses ? kItems : kLanes, kRuns = kPasses ? 1 : kItems;
    Index first, packets, length;  // of the piece, and in the row

    __device__ __forceinline__ ScanPiece(Index first, Index length)
        : first(first), packets(length / kLanes), length(length) {}

    __device__ __forceinline__ Index packet(int item) const {
        return first + threadIdx.x / 32 * (32 * kItems) + item * 32 + threadIdx.x % 32;
    }
    __device__ __forceinline__ Index place(Index packet) const {
        return (kReverse ? packets - 1 - packet : packet) * kLanes;
    }

    // load, scanned and after are those of ScanAlong, load told how many Lanes are asked for;
    // carried(mine) is what comes before the piece.
    template <typename State, typename Known, typename Packet, typename Carry, typename Load,
              typename Scanned, typename Carried, typename After>
    __device__ __forceinline__ void walk(Load load, Scanned scanned, Carried carried,
                                         After after) const {
        Packet loaded[kItems];
#pragma unroll
        for (int item = 0; item < kItems; ++item) {
            if (packet(item) < packets) loaded[item] = load(place(packet(item)), Lanes<kLanes>());
        }
        State mine[kRuns][kRun];
#pragma unroll
        for (int item = 0; item < kItems; ++item) {
            State lanes[kLanes];
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = State::nothing();
            if (packet(item) < packets) scanned(place(packet(item)), loaded[item], lanes);
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) {
                state(mine, item, lane) = lanes[kReverse ? kLanes - 1 - lane : lane];
            }
        }
        exchange<true>(mine);
        State before[kRuns];
        Carry warps_before;
        const Carry piece = scan_piece(mine, before, warps_before);
        Carry carry;
        if constexpr (kRest && kReverse && kLanes > 1) {
            Carry rest = Carry::nothing();
            if (first == 0) rest = walk_rest<State, Known>(rest, load, scanned, after);
            Carry own = rest;
            own.follow(piece);
            carry = carried(own);
            carry.follow(rest);
        } else {
            carry = carried(piece);
        }
        if constexpr (kRest && !kReverse && kLanes > 1) {
            if ((first + kTeam * kItems) * kLanes >= length) {
                Carry up_to = carry;
                up_to.follow(piece);
                walk_rest<State, Known>(up_to, load, scanned, after);
            }
        }
        carry.follow(warps_before);
#pragma unroll
        for (int run = 0; run < kRuns; ++run) {
            tell_in_thread<kExclusive>(mine[run], before[run], carry);
        }
        exchange<false>(mine);
#pragma unroll
        for (int item = 0; item < kItems; ++item) {
            Known known[kLanes];
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) {
                state(mine, item, lane).tell(known[kReverse ? kLanes - 1 - lane : lane]);
            }
            if (packet(item) < packets) after(place(packet(item)), loaded[item], known);
        }
    }

    // All threads of a block go along and come to the same; one stores.
    template <typename State, typename Known, typename Carry, typename Load, typename Scanned,
              typename After>
    __device__ __forceinline__ Carry walk_rest(Carry carry, Load load, Scanned scanned,
                                               After after) const {
        for (Index k = packets * kLanes; k < length; ++k) {
            const Index at = kReverse ? length - 1 - (k - packets * kLanes) : k;
            const auto loaded = load(at, Lanes<1>());
            State mine[1] = {State::nothing()};
            scanned(at, loaded, mine);
            Known known[1];
            carry.told(kExclusive ? State::nothing() : mine[0]).tell(known[0]);
            if (threadIdx.x == 0) after(at, loaded, known);
            carry.follow(mine[0]);
        }
        return carry;
    }

    template <typename State>
    OPWELD_FN State& state(State (&mine)[kRuns][kRun], int item, int lane) {
        return kPasses ? mine[0][item] : mine[kPasses ? 0 : item][lane];
    }

    // A warp's own.
    template <typename State>
    OPWELD_FN State* places() {
        __shared__ State of_block[kWarps * 33 * kItems];
        return of_block + threadIdx.x / 32 * (33 * kItems);
    }

    template <bool kToNeighbours, typename State>
    OPWELD_FN void exchange(State (&mine)[kRuns][kRun]) {
        if constexpr (kPasses) exchange_in_warp<32, kToNeighbours>(mine[0], places<State>());
    }

    // Scans each run, and says what the piece comes to, what the warps before do, and what comes
    // before each run in its warp.
    template <typename Carry, typename State>
    OPWELD_FN Carry scan_piece(State (&mine)[kRuns][kRun], State (&before)[kRuns],
                               Carry& warps_before) {
        constexpr unsigned kAll = 0xffffffffu;
        State of_warp = State::nothing();
#pragma unroll
        for (int run = 0; run < kRuns; ++run) {
            scan_in_thread(mine[run]);
            const State up_to = scanned_in_warp<32>(kAll, mine[run][kRun - 1]);
            State earlier = shuffled_up<32>(kAll, up_to, 1);
            if (threadIdx.x % 32 == 0) earlier = State::nothing();
            before[run] = of_warp;
            before[run].follow(earlier);
            of_warp.follow(shuffled_from<32>(kAll, up_to, 31));
        }
        __shared__ State of_block[kWarps];
        if (threadIdx.x % 32 == 0) of_block[threadIdx.x / 32] = of_warp;
        __syncthreads();
        Carry whole = Carry::nothing();
#pragma unroll 8
        for (int warp = 0; warp < kWarps; ++warp) {
            if (warp == threadIdx.x / 32) warps_before = whole;
            whole.follow(of_block[warp]);
        }
        return whole;
    }
};

// @ScanStrips deps:
// The shape of a launch whose columns kStrips threads each scan. Where a thread has single columns
// and registers suffice, blocks are as wide as can be: rows are then odd, and blocks that share a
// sector at every row's end, and go apart, write half of it each.
template <int kStrips, int kLanes, typename State>
constexpr int kScanThreads = kStrips == 32 || (kLanes == 1 && sizeof(State) <= 8) ? 1024 : 256;
template <int kStrips, int kLanes, typename State, typename Index>
constexpr int kScanBlocks = kScanThreads<kStrips, kLanes, State> == 1024 ? 1
                            : sizeof(Index) > 4                          ? 2
                            : kLanes * sizeof(State) > 16                ? 2
                            : kLanes == 1                                ? 4
                                                                         : 3;

// @ScanAcross deps: ScanStrips, scan_in_thread, tell_in_thread
// kColumns times kLanes columns that kStrips threads each scan together, kItems neighbours a
// thread.
template <int kStrips, int kColumns, int kItems, int kLanes, bool kReverse, bool kExclusive,
          typename Index>
struct ScanAcross {
    static constexpr Index kChunk = kStrips * kItems;
    Index first, last, length;
    bool inside;

    // Elements first to last of a column's; threads that are not inside only keep step.
    __device__ __forceinline__ ScanAcross(Index first, Index last, Index length, bool inside)
        : first(first), last(last), length(length), inside(inside) {}

    __device__ __forceinline__ Index element(Index chunk, int item) const {
        return chunk + threadIdx.x / kColumns * kItems + item;
    }
    __device__ __forceinline__ Index place(Index element) const {
        return kReverse ? length - 1 - element : element;
    }

    template <typename Packet, typename Load>
    __device__ __forceinline__ void load_chunk(Packet (&loaded)[kItems], Index chunk,
                                               Load load) const {
#pragma unroll
        for (int item = 0; item < kItems; ++item) {
            const Index at = element(chunk, item);
            if (inside && at < last) loaded[item] = load(place(at));
        }
    }

    // As ScanAlong does, without kStores only to fold; each lane has a carry of its own.
    template <typename State, typename Known, bool kStores, typename Packet, typename Carry,
              typename Load, typename Scanned, typename After>
    __device__ __forceinline__ void walk(Carry (&carry)[kLanes], Load load, Scanned scanned,
                                         After after) const {
        Packet next[kItems];
        load_chunk(next, first, load);
        int turn = 0;
        for (Index chunk = first; chunk < last; chunk += kChunk) {
            Packet loaded[kItems];
#pragma unroll
            for (int item = 0; item < kItems; ++item) loaded[item] = next[item];
            if (last - chunk > kChunk) load_chunk(next, chunk + kChunk, load);
            State mine[kLanes][kItems];
#pragma unroll
            for (int item = 0; item < kItems; ++item) {
                State lanes[kLanes];
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = State::nothing();
                const Index at = element(chunk, item);
                if (inside && at < last) scanned(place(at), loaded[item], lanes);
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) mine[lane][item] = lanes[lane];
            }
            State before[kLanes], whole[kLanes];
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) scan_in_thread(mine[lane]);
            before_in_column(mine, before, whole, turn);
            if constexpr (kStores) {
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) {
                    tell_in_thread<kExclusive>(mine[lane], before[lane], carry[lane]);
                }
#pragma unroll
                for (int item = 0; item < kItems; ++item) {
                    Known known[kLanes];
#pragma unroll
                    for (int lane = 0; lane < kLanes; ++lane) mine[lane][item].tell(known[lane]);
                    const Index at = element(chunk, item);
                    if (inside && at < last) after(place(at), loaded[item], known);
                }
            }
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) carry[lane].follow(whole[lane]);
            turn ^= 1;
        }
    }

    // What the strips before each one come to, and all strips; memory is used in turns. A single
    // strip waits, too: warps that go on alone drift apart, and take twice as long together.
    template <typename State>
    OPWELD_FN void before_in_column(const State (&mine)[kLanes][kItems], State (&before)[kLanes],
                                    State (&whole)[kLanes], int turn) {
        if constexpr (kStrips == 1) {
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) {
                before[lane] = State::nothing();
                whole[lane] = mine[lane][kItems - 1];
            }
            __syncthreads();
            return;
        }
        __shared__ State of_strip[2][kStrips][kLanes][kColumns];
        const int strip = threadIdx.x / kColumns, column = threadIdx.x % kColumns;
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
            of_strip[turn][strip][lane][column] = mine[lane][kItems - 1];
        }
        __syncthreads();
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
            whole[lane] = before[lane] = State::nothing();
#pragma unroll 8
            for (int other = 0; other < kStrips; ++other) {
                if (other == strip) before[lane] = whole[lane];
                whole[lane].follow(of_strip[turn][other][lane][column]);
            }
        }
    }
};

}  // namespace op
