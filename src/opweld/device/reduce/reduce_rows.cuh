// All reductions of rows that threads pass over together. A functor F is what is known of a row:
//     F::Operands        those read, then the results, along axes of a space (see space.cuh)
//     F::Kept, Reduced   the axes that number rows, and those along a row; F::kLane is the axis in
//                        which F::kWidth neighbours may be handled at once
//     F::Passes          the passes over a row: what each folds and which operands it has
//     F::Held            operands that stay on the chip, as several passes read them
//     F::of(pass, ...)   what is folded of an element, and what is stored of it
//     F::after(pass, folds..., ...)  what is known then, and what is stored of the row
// Sizes and strides are those of the tensors at each call.

namespace op {

// @Values deps:
// Values of several types.
template <typename... T>
struct Values {};
template <typename T, typename... More>
struct Values<T, More...> : Values<More...> {
    T value;
    Values() = default;
    __device__ __forceinline__ Values(T value, More... more)
        : Values<More...>(more...), value(value) {}
};
template <int i, typename T, typename... More>
OPWELD_FN auto nth(const Values<T, More...>& values) {
    if constexpr (i == 0) return values.value;
    else return nth<i - 1>(static_cast<const Values<More...>&>(values));
}

// @Fold deps:
// What is folded of elements of type T into a state, which is of the same type.
template <typename Op, typename T>
struct Fold : Op {
    using State = T;
    using Element = T;
    static constexpr bool kTakesChunks = false;
    OPWELD_FN State nothing() { return Op::template identity<T>(); }
    OPWELD_FN Element one(T value, int64_t) { return value; }
    OPWELD_FN State add(State state, T value, int64_t) { return Op::combine(state, value); }
};

// @FoldOfMean deps: Fold, Mean
template <typename T>
struct Fold<Mean, T> : Mean {
    using State = Compensated<T>;
    using Element = State;
    static constexpr bool kTakesChunks = false;
    OPWELD_FN State nothing() { return identity<T>(); }
    OPWELD_FN Element one(T value, int64_t) { return {value, 0}; }
    OPWELD_FN State add(State state, T value, int64_t) { return follow(state, one(value, 0)); }
};

// @FoldOfPlaces deps: Placed
// The place of an element, which Op chooses.
template <typename Op, typename T, typename Position>
struct FoldOfPlaces : Op {
    using State = Placed<T, Position>;
    using Element = State;
    static constexpr bool kTakesChunks = false;
    OPWELD_FN State nothing() { return Op::template identity<T, Position>(); }
    OPWELD_FN Element one(T value, int64_t at) { return {value, Position(at)}; }
    OPWELD_FN State add(State state, T value, int64_t at) {
        return Op::follow(state, one(value, at));
    }
};

// @FoldOfSpread deps: Fold, Devsq, take_spread
template <typename T>
struct Fold<Devsq, T> : Devsq {
    using State = Spread<T>;
    using Element = T;
    static constexpr bool kTakesChunks = true;
    OPWELD_FN State nothing() { return identity<T>(); }
    OPWELD_FN Element one(T value, int64_t) { return value; }
    template <int kCount>
    OPWELD_FN void take(State& state, const T (&values)[kCount], int count) {
        op::take(state, values, count);
    }
};

// @FoldOfPowers deps: Fold, Sumexp, take_powers
template <typename T>
struct Fold<Sumexp, T> : Sumexp {
    using State = Powers<T, T>;
    using Element = T;
    static constexpr bool kTakesChunks = true;
    OPWELD_FN State nothing() { return identity<T, T>(); }
    OPWELD_FN Element one(T value, int64_t) { return value; }
    template <int kCount>
    OPWELD_FN void take(State& state, const T (&values)[kCount], int count) {
        op::take(state, values, count);
    }
};

// @ElementFolds deps: Values
// All that pass kPass folds; kChain elements are folded one after another, then as many of these.
template <int kPass, int kChained, typename... F>
struct ElementFolds {
    static constexpr int kChain = kChained;
    static constexpr bool kChunks = false;
    OPWELD_FN ElementFolds nothing() { return {}; }
    __device__ __forceinline__ void add(Values<>, int64_t) {}
    __device__ __forceinline__ void merge(const ElementFolds&) {}
    template <typename Told, typename... State>
    __device__ __forceinline__ void tell(Told told, const State&... states) const {
        told(states...);
    }
};
template <int kPass, int kChained, typename F, typename... More>
struct ElementFolds<kPass, kChained, F, More...> : ElementFolds<kPass, kChained, More...> {
    using Rest = ElementFolds<kPass, kChained, More...>;
    typename F::State state;
    OPWELD_FN ElementFolds nothing() { return {Rest::nothing(), F::nothing()}; }
    template <typename T, typename... Others>
    __device__ __forceinline__ void add(const Values<T, Others...>& values, int64_t position) {
        state = F::add(state, values.value, position);
        Rest::add(static_cast<const Values<Others...>&>(values), position);
    }
    __device__ __forceinline__ void merge(const ElementFolds& other) {
        state = F::combine(state, other.state);
        Rest::merge(other);
    }
    // Calls told(state of the first, state of the second, ...).
    template <typename Told, typename... State>
    __device__ __forceinline__ void tell(Told told, const State&... states) const {
        Rest::tell(told, states..., state);
    }
};

// @ChunkFolds deps: Values, of_chunk
// The folds of a pass of which some take in several elements at once.
template <int kPass, int kChained, typename... F>
struct ChunkFolds {
    static constexpr int kChain = kChained;
    static constexpr bool kChunks = true;
    struct Element {
        __device__ __forceinline__ void add(Values<>, int64_t) {}
    };
    OPWELD_FN ChunkFolds nothing() { return {}; }
    template <typename Elements>
    __device__ __forceinline__ void take(const Elements&, int) {}
    __device__ __forceinline__ void merge(const ChunkFolds&) {}
    template <typename Told, typename... State>
    __device__ __forceinline__ void tell(Told told, const State&... states) const {
        told(states...);
    }
};
template <int kPass, int kChained, typename F, typename... More>
struct ChunkFolds<kPass, kChained, F, More...> : ChunkFolds<kPass, kChained, More...> {
    using Rest = ChunkFolds<kPass, kChained, More...>;
    typename F::State state;
    struct Element : Rest::Element {
        typename F::Element own;
        template <typename T, typename... Others>
        __device__ __forceinline__ void add(const Values<T, Others...>& values, int64_t position) {
            own = F::one(values.value, position);
            Rest::Element::add(static_cast<const Values<Others...>&>(values), position);
        }
    };
    OPWELD_FN ChunkFolds nothing() { return {Rest::nothing(), F::nothing()}; }
    template <typename Any, int kCount>
    __device__ __forceinline__ void take(const Any (&elements)[kCount], int count) {
        typename F::Element own[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) own[k] = static_cast<const Element&>(elements[k]).own;
        if constexpr (F::kTakesChunks) F::take(state, own, count);
        else state = F::combine(state, of_chunk<F>(own, count, F::nothing()));
        Rest::take(elements, count);
    }
    __device__ __forceinline__ void merge(const ChunkFolds& other) {
        state = F::combine(state, other.state);
        Rest::merge(other);
    }
    template <typename Told, typename... State>
    __device__ __forceinline__ void tell(Told told, const State&... states) const {
        Rest::tell(told, states..., state);
    }
};

// @reduce_rows deps: Along, Axes, NoFolds, Pack, Values, Walks, launch_early, load_words, store_words
template <int... i>
struct Of {};  // operands that a pass has
template <int... i>
struct After {};  // operands along rows that are there after it
template <int... i>
struct At {};  // and operands that it has as functions of a position in the row
template <typename Folded, typename Operands, typename OfRow = After<>, typename Anywhere = At<>>
struct Pass {
    using Folds = Folded;
    static constexpr bool kFolds = !std::is_same_v<Folds, NoFolds>, kChunks = Folds::kChunks;
};
// An instance: the threads of a row (or strips of a column), the packets that each has in registers
// (and in shared memory), the most packets of a row where there is a limit, the lanes of a packet
// where they are not F::kWidth, the blocks of a row.
template <int kOfThreads, int kOfItems = 0, int64_t kOfMost = 0, int kOfLanes = 0,
          int kInShared = 0, int kOfBlocks = 1>
struct Team {
    static constexpr int kThreads = kOfThreads, kItems = kOfItems, kShared = kInShared;
    static constexpr int kLanes = kOfLanes, kBlocks = kOfBlocks;
    static constexpr int64_t kMost = kOfMost;
    static constexpr bool kFlat = false;
};
// A Team whose rows are flat: one run of neighbours in each operand that lies along them.
template <typename Team>
struct Flat : Team {
    static constexpr bool kFlat = true;
};
template <bool kFlat, typename... Team>
Types<If<kFlat, Flat<Team>, Team>...> flat(Types<Team...>);

// The rows of a launch: their axes, and those along a row.
template <typename F>
struct Layout {
    Axes<std::extent_v<decltype(F::kAxesOfRows)>, F::Operands::kNumTypes> rows;
    Axes<std::extent_v<decltype(F::kAxesOfRow)>, F::Operands::kNumTypes> row;
    int64_t num_rows, length, piece;
};
template <int i, typename Operands>
struct Nth;
template <int i, typename X, typename... More>
struct Nth<i, Types<X, More...>> : Nth<i - 1, Types<More...>> {};
template <typename X, typename... More>
struct Nth<0, Types<X, More...>> : X {};
// What is moved of operand i at once: n neighbours, or one element for all of them.
template <typename F, int i, int n, typename X = Nth<i, typename F::Operands>>
using PackOf = Pack<std::remove_const_t<typename X::T>, X::has(F::kLane) ? n : 1>;
template <typename F, int i>
constexpr bool reads() {
    return std::is_const_v<typename Nth<i, typename F::Operands>::T>;
}
template <typename F, typename X>
constexpr bool of_rows() {
    for (int axis : F::kAxesOfRows) {
        if (X::has(axis)) return true;
    }
    return false;
}
template <typename F, int n, int... i>
Values<PackOf<F, i, n>...> packet_of(Of<i...>);
template <typename F, int n>
using PacketOf = decltype(packet_of<F, n>(typename F::Held()));
// Whether rows can be flat: their axes follow each other, and an operand lies along all or none.
template <typename F, typename... X>
constexpr bool can_be_flat(Types<X...>) {
    bool can = !F::kAcross;
    int next = F::kAxesOfRow[0];
    for (int axis : F::kAxesOfRow) {
        can = can && axis == next++ && ((X::has(axis) == X::has(F::kAxesOfRow[0])) && ...);
    }
    return can;
}
template <typename F>
constexpr bool kCanBeFlat = can_be_flat<F>(typename F::Operands());
// The operands of a row; n neighbours are a packet where an operand lies along F::kLane.
template <typename F, bool kFlat, typename Index, typename... T>
struct Line {
    const Layout<F>& rows;
    Values<T*...> data;
    Index starts[sizeof...(T)];

    template <size_t... i>
    __device__ __forceinline__ Line(const Layout<F>& rows, Index row, std::index_sequence<i...>,
                                    T*... data)
        : rows(rows), data(data...), starts{rows.rows.offset(row, i)...} {}

    template <int i, int n>
    __device__ __forceinline__ PackOf<F, i, n>* place(Index at) const {
        using X = Nth<i, typename F::Operands>;
        constexpr int kStep = n == 1 || F::kAcross ? -1 : X::has(F::kLane);
        constexpr bool kOfRows = of_rows<F, X>();  // others begin at the same place for all
        const Index start = kOfRows ? starts[i] : 0;
        const Index along = kFlat ? X::has(F::kLane) * at : rows.row.template offset<kStep>(at, i);
        return (PackOf<F, i, n>*)(nth<i>(data) + (start + along));
    }
    // What is read of an operand, which no result shares memory with, or room for a result.
    template <int i, int n>
    __device__ __forceinline__ PackOf<F, i, n> load(Index at) const {
        if constexpr (!reads<F, i>()) return {};
        else return load_words(place<i, n>(at), [](const auto* word) { return __ldg(word); });
    }
    template <int i, int n>
    __device__ __forceinline__ void store(Index at, const PackOf<F, i, n>& values) const {
        if constexpr (reads<F, i>()) return;
        else store_words(place<i, n>(at), values, [](auto* to, auto word) { *to = word; });
    }
    template <int n, int... i>
    __device__ __forceinline__ PacketOf<F, n> held(Index at, Of<i...>) const {
        return {load<i, n>(at)...};
    }
};
template <typename T, int n>
OPWELD_FN T& lane_of(Pack<T, n>& pack, int lane) {
    return pack.value[n > 1 ? lane : 0];
}
// The operand i of a pass: from the packet, where that holds it.
template <int i, int n, int number = 0, typename Line, typename Packet, typename Index>
OPWELD_FN auto operand(const Line& line, const Packet&, Index at, Of<>) {
    return line.template load<i, n>(at);
}
template <int i, int n, int number = 0, typename Line, typename Packet, typename Index, int held,
          int... more>
OPWELD_FN auto operand(const Line& line, const Packet& packet, Index at, Of<held, more...>) {
    if constexpr (i == held) return nth<number>(packet);
    else return operand<i, n, number + 1>(line, packet, at, Of<more...>());
}
// A packet goes through a pass. Its lanes are elements of one row, or of as many rows.
template <int n, typename F, int kKnown, typename P, int... i, typename... More, typename Line,
          typename Packet, typename Index, typename Folds>
OPWELD_FN void visit(Pass<P, Of<i...>, More...> pass, const F (&known)[kKnown], const Line& line,
                     const Packet& packet, Index at, Folds& folds) {
    [&](auto... x) {
#pragma unroll
        for (int lane = 0; lane < n; ++lane) {
            const F& row = known[kKnown > 1 ? lane : 0];
            if constexpr (!Pass<P, Of<i...>, More...>::kFolds) row.of(pass, lane_of(x, lane)...);
            else folds[lane].add(row.of(pass, lane_of(x, lane)...), at + (F::kAcross ? 0 : lane));
        }
        (line.template store<i, n>(at, x), ...);
    }(operand<i, n>(line, packet, at, typename F::Held())...);
}
template <int i, typename Line>
struct Anywhere {
    const Line& line;
    template <typename Index>
    __device__ __forceinline__ auto operator()(Index at) const {
        return line.template load<i, 1>(at).value[0];
    }
};
// What is known after a pass.
template <typename F, typename P, typename Operands, int... i, int... k, typename Line,
          typename Folds>
OPWELD_FN void after(Pass<P, Operands, After<i...>, At<k...>> pass, F& known, const Line& line,
                     const Folds& folds, bool stores) {
    [&](auto... x) {
        folds.tell([&](const auto&... states) {
            known.after(pass, states..., x.value[0]..., Anywhere<k, Line>{line}...);
        });
        if (stores) (line.template store<i, 1>(0, x), ...);
    }(line.template load<i, 1>(0)...);
}
template <int kStep, int kLanes, int kItems, typename Packet, typename Index, int kDeep>
struct ChunkWalks;
template <int kStep, int kLanes, int kItems, typename Packet, typename Index, int kShared>
struct SharedWalks;
template <typename F, int kStep, int kLanes, typename Team, typename Packet, typename Index>
using WalksOf = std::conditional_t<
    F::kChunks, ChunkWalks<kStep, kLanes, Team::kItems, Packet, Index, F::kAcross ? 2 : 1>,
    std::conditional_t<(Team::kShared > 0),
                       SharedWalks<kStep, kLanes, Team::kItems, Packet, Index, Team::kShared>,
                       Walks<kStep, kLanes, Team::kItems, Packet, Index>>>;
template <typename... P, typename Walked>
OPWELD_FN void each(Types<P...>, Walked walked) {
    (walked(P()), ...);
}
// A pass of a thread over its packets. Folds of several elements at once have a way of their own.
template <typename P, typename Walks, typename Folds, typename Load, typename Visit>
OPWELD_FN void walk(P, const Walks& walks, Folds& folds, Load load, Visit visit) {
    if constexpr (P::kChunks) walks.walk_chunks(folds, load, visit);
    else walks.walk(folds, load, visit);
}

// @rows_along deps: reduce_rows, Team, in_team, merged, OneBlock, dependents
// Neighbours in a row are neighbours in memory: a team of threads has a row, or some blocks do.
template <typename F, typename Team, int kLanes, typename Index, typename... T>
OPWELD_FN void along_rows(const Layout<F>& rows, Index block, void* partials, T*... data) {
    using Blocks = RowOfBlocks<Team::kThreads, Team::kBlocks>;
    const Index row = (block * blockDim.x + threadIdx.x) / Blocks::kThreads;
    if (row >= Index(rows.num_rows)) return;
    const int rank = Blocks::rank();
    // All packets of a known length need no tests; with some in shared memory registers are short.
    const Index length = F::kLength && Team::kShared == 0 ? F::kLength : rows.length;
    const Index first = F::Cut::begin(Index(rows.piece)), last = F::Cut::end(first, rows, length);
    const Line<F, Team::kFlat, Index, T...> line(rows, row, std::index_sequence_for<T...>(),
                                                 data...);
    F known[1];
    known[0].length = length;
    const auto load = [&](Index at) { return line.template held<kLanes>(at, typename F::Held()); };
    constexpr int kStep = Blocks::kThreads * kLanes;
    WalksOf<F, kStep, kLanes, Team, PacketOf<F, kLanes>, Index> walks(first + rank * kLanes, last);
    if constexpr (Team::kItems > 0) walks.hold(load);
    each(typename F::Passes(), [&](auto pass) {
        using P = decltype(pass);
        typename P::Folds folds[P::kChunks ? 1 : kLanes];
        walk(pass, walks, folds, load, [&](const auto& packet, Index at, auto& part) {
            visit<kLanes>(pass, known, line, packet, at, part);
        });
        if constexpr (P::kFolds) {
            const auto all = Blocks::folded(merged(folds));
            if (F::Cut::keeps(partials, rows, row, all, rank == 0)) return;
            after(pass, known[0], line, all, rank == 0);
        }
    });
    Blocks::end();
}
template <typename F, typename Team, int kLanes, typename Index, typename... T>
__global__ void __launch_bounds__(kTeamThreads<Team::kThreads>,
                                  kLeastBlocks<kTeamThreads<Team::kThreads>, Index, F::kResident>)
    rows_along(const Layout<F> rows, void* partials, T*... data) {
    griddepcontrol_wait();
    along_rows<F, Team, kLanes>(rows, Index(blockIdx.x), partials, data...);
}

// @rows_across deps: reduce_rows, kLeastBlocks, in_columns, dependents
// Neighbouring rows are neighbours in memory: a block has some as columns, each read by several
// strips; a thread has kLanes of them.
template <typename F, typename Team, int kLanes, typename Index, typename... T>
OPWELD_FN void across_rows(const Layout<F>& rows, Index block, void* partials, T*... data) {
    constexpr int kStrips = Team::kThreads, kColumns = F::Cut::threads_of(kStrips) / kStrips;
    const int strip = threadIdx.x / kColumns;
    const Index row = (block * kColumns + threadIdx.x % kColumns) * kLanes;
    const bool inside = row < Index(rows.num_rows);
    const Index length = F::kLength ? F::kLength : rows.length;
    const Index first = F::Cut::begin(Index(rows.piece)), last = F::Cut::end(first, rows, length);
    const auto line_of = [&](Index row) {
        return Line<F, false, Index, T...>(rows, row, std::index_sequence_for<T...>(), data...);
    };
    const auto line = line_of(row);
    F known[kLanes];
    for (F& each : known) each.length = length;
    const auto load = [&](Index at) { return line.template held<kLanes>(at, typename F::Held()); };
    WalksOf<F, kStrips, kLanes, Team, PacketOf<F, kLanes>, Index> walks(first + strip,
                                                                        inside ? last : 0);
    if constexpr (Team::kItems > 0) walks.hold(load);
    each(typename F::Passes(), [&](auto pass) {
        using P = decltype(pass);
        typename P::Folds folds[kLanes];
        walk(pass, walks, folds, load, [&](const auto& packet, Index at, auto& part) {
            visit<kLanes>(pass, known, line, packet, at, part);
        });
        if constexpr (P::kFolds) {
            // The only pass may take half of a block's shared memory, several share that.
            constexpr int kMostBytes = F::Cut::kCuts ? 24 << 10 : 8 << 10;
            in_columns<kStrips, kColumns, kMostBytes>(folds);
            const bool stores = inside && strip == 0;
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) {
                if (F::Cut::keeps(partials, rows, row + lane, folds[lane], stores)) continue;
                if (inside) after(pass, known[lane], line_of(row + lane), folds[lane], stores);
            }
        }
    });
}
template <typename F, typename Team, int kLanes, typename Index, typename... T>
__global__ void __launch_bounds__(
    F::Cut::threads_of(Team::kThreads),
    kLeastBlocks<F::Cut::threads_of(Team::kThreads), Index, F::kResident>)
    rows_across(const Layout<F> rows, void* partials, T*... data) {
    griddepcontrol_wait();
    across_rows<F, Team, kLanes>(rows, Index(blockIdx.x), partials, data...);
}

// @finish_rows deps: reduce_rows, in_strips
// Puts the pieces of each row together: threads of a column have a row, strips its pieces.
template <typename F, int kThreads, typename Index, typename... T>
OPWELD_FN void finish_rows(const Layout<F>& rows, const void* partials, Index pieces, int columns,
                           T*... data) {
    const Index strip = threadIdx.x / columns, strips = kThreads / columns;
    const Index row = Index(blockIdx.x) * columns + threadIdx.x % columns;
    const bool inside = row < Index(rows.num_rows);
    const Index count = inside && strip < pieces ? (pieces - strip - 1) / strips + 1 : 0;
    const Walks<1, 1, 0, Values<>, Index> walks(0, count);
    each(typename F::Passes(), [&](auto pass) {
        using Folds = typename decltype(pass)::Folds;
        Folds folds[1];
        const auto load = [](Index) { return Values<>(); };
        walks.walk(folds, load, [&](const auto&, Index at, auto& part) {
            const Index piece = strip + at * strips;
            part[0].merge(static_cast<const Folds*>(partials)[piece * Index(rows.num_rows) + row]);
        });
        const auto merged = in_strips<kThreads>(folds[0], columns);
        if (!inside || strip > 0) return;
        F known;
        known.length = rows.length;
        const Line<F, false, Index, T...> line(rows, row, std::index_sequence_for<T...>(), data...);
        after(pass, known, line, merged, true);
    });
}

// @rows_finish deps: finish_rows, kLeastBlocks, dependents
template <typename F, int kThreads, typename Index, typename... T>
__global__ void __launch_bounds__(kThreads, kLeastBlocks<kThreads, Index>)
    rows_finish(const Layout<F> rows, const void* partials, Index pieces, int columns, T*... data) {
    griddepcontrol_wait();
    finish_rows<F, kThreads>(rows, partials, pieces, columns, data...);
}

// @Row deps:
// Rows that are not cut.
struct Whole {
    static constexpr bool kCuts = false;
    static int64_t pieces(int64_t, int64_t) { return 1; }
    static constexpr int threads_of(int strips) { return strips < 32 ? 256 : 1024; }
    template <typename Index>
    OPWELD_FN Index begin(Index) {
        return 0;
    }
    template <typename Index, typename Layout>
    OPWELD_FN Index end(Index, const Layout&, Index length) {
        return length;
    }
    template <typename... Given>
    OPWELD_FN bool keeps(const Given&...) {
        return false;
    }
    template <typename F, typename... X, typename... Given>
    static void finish(Given...) {}
};
// What all functors have. An axis of size 1 may be missing: it has the number kRank.
struct Row {
    static constexpr bool kChunks = false;
    static constexpr int kResident = 1024;    // threads that a multiprocessor must hold
    static constexpr int64_t kLength = 0;     // any
    static constexpr int64_t kLeastRows = 0;  // of which a thread has some, where they are columns
    using Cut = Whole;
    int64_t length;
};

// @reduce deps: Row, Space, TensorView, reduce_rows
// The rows of a call.
template <typename F, typename... X>
struct Rows : Space<F::kRank, X...> {
    using Own = Space<F::kRank, X...>;
    const TensorView* x;
    int64_t num_rows = 1, length = 1;

    explicit Rows(const TensorView* x) : Own(x), x(x) {
        for (int a : F::kAxesOfRows) num_rows *= Own::sizes[a];
        for (int a : F::kAxesOfRow) length *= Own::sizes[a];
        if (!Own::misfit && F::kLength && length != F::kLength) Own::misfit = -1;
    }
    Layout<F> layout() const {
        return {Own::merged(F::kAxesOfRows), Own::merged(F::kAxesOfRow), num_rows, length, length};
    }
    // Whether a row is one run of neighbours in each operand that lies along it.
    bool flat() const {
        constexpr bool kAlong[] = {X::has(F::kLane)...};
        const auto row = layout().row;
        bool fits = row.num <= 1;
        for (int i = 0; i < Own::kCount; ++i) fits = fits && (!kAlong[i] || row.steps[i][0] == 1);
        return fits || length == 1;
    }
    // Whether neighbours along F::kLane can be moved at once.
    bool packed() const {
        constexpr size_t kBytes[] = {
            alignof(Pack<std::remove_const_t<typename X::T>, F::kWidth>)...};
        constexpr size_t kEach[] = {sizeof(typename X::T)...};
        constexpr bool kAlong[] = {X::has(F::kLane)...};
        const auto [rows, row, num_rows, length, piece] = layout();
        const int64_t run = F::kAcross ? rows.sizes[0].by : row.sizes[0].by;
        bool fits = Own::sizes[F::kLane] > 1 && run % F::kWidth == 0;
        for (int i = 0; i < Own::kCount; ++i) {
            if (!kAlong[i]) continue;
            int64_t starts = 0;  // of runs, in elements
            for (int a = F::kAcross; a < rows.num; ++a) starts |= rows.steps[i][a];
            for (int a = !F::kAcross; a < row.num; ++a) starts |= row.steps[i][a];
            const int64_t first = reinterpret_cast<intptr_t>(x[i].data);
            fits = fits && Own::steps[i][F::kLane] == 1;
            fits = fits && (first | starts * int64_t(kEach[i])) % kBytes[i] == 0;
        }
        return fits;
    }
};
template <typename F, int kLanes, typename Team, typename... More, typename Launch>
void first_that_reaches(int64_t packets, Types<Team, More...>, Launch launch) {
    constexpr bool kKnown = F::kLength > 0;  // then others are not compiled
    constexpr int64_t kPackets = F::kLength / (F::kAcross ? 1 : kLanes);
    if constexpr (sizeof...(More) == 0 || (kKnown && kPackets <= Team::kMost)) {
        launch(Team());
    } else {
        if constexpr (!kKnown) {
            if (packets <= Team::kMost) return launch(Team());
        }
        first_that_reaches<F, kLanes>(packets, Types<More...>(), launch);
    }
}
// Where columns that are cut leave threads of a block without any, more threads have each.
template <typename F, int kLanes, typename Index, typename Shape, typename Launch>
void with_all_threads(int64_t num_columns, Shape shape, Launch launch) {
    constexpr int kEach = Shape::kThreads;
    if constexpr (F::kAcross && F::Cut::kCuts && kEach == 8 && sizeof(Index) == 4) {
        constexpr int kOfThread = Shape::kLanes ? Shape::kLanes : kLanes;
        constexpr int kColumns = F::Cut::threads_of(kEach) / kEach * kOfThread;
        if (4 * num_columns <= kColumns) return launch(Team<4 * kEach, 0, 0, Shape::kLanes>());
        if (2 * num_columns <= kColumns) return launch(Team<2 * kEach, 0, 0, Shape::kLanes>());
    }
    launch(shape);
}
// Calls run(lanes, index, teams). Where rows can be flat, others are rare.
template <typename F, typename Run>
void choose(bool packed, bool flat_rows, bool narrow, Run run) {
    using Width = Int<F::kWidth>;
    using Rare = typename F::Rare;
    constexpr bool kFlat = kCanBeFlat<F>;
    const bool usual = flat_rows || !kFlat;
    if (F::kWidth > 1 && packed && usual) {
        if (narrow) run(Width(), 0u, decltype(flat<kFlat>(typename F::Teams()))());
        else run(Width(), uint64_t(), decltype(flat<kFlat>(Rare()))());
    } else if (narrow && usual) {
        run(Int<1>(), 0u, decltype(flat<kFlat>(typename F::Singles()))());
    } else {
        if constexpr (kFlat) {
            if (narrow) return run(Int<1>(), 0u, Rare());
        }
        run(Int<1>(), uint64_t(), Rare());
    }
}
// Launches a functor; returns a cudaError_t, or what does not fit.
template <typename F, typename... X, size_t... i>
int reduce(const Rows<F, X...>& space, cudaStream_t stream, std::index_sequence<i...>) {
    if (space.misfit || space.num_rows == 0) return space.misfit;
    const int64_t pieces = F::Cut::pieces(space.num_rows, space.length);
    void* const partials = F::Cut::kCuts ? space.x[sizeof...(X)].data : nullptr;
    const auto run = [&](auto lanes, auto index, auto teams) {
        using Index = decltype(index);
        auto rows = space.layout();
        const int64_t packets = F::kAcross ? space.length : space.length / lanes;
        const auto launch = [&](auto team) {
            using Team = decltype(team);
            constexpr int kLanes = Team::kLanes ? Team::kLanes : int(lanes);
            constexpr int kThreads = F::template threads<F, Team>();
            constexpr int64_t kRows = kThreads / Team::kThreads * (F::kAcross ? kLanes : 1);
            const unsigned int blocks = (space.num_rows + kRows - 1) / kRows;
            if constexpr (F::Cut::kCuts) {
                rows.piece = F::Cut::piece(space.length, pieces, F::kAcross ? 1 : kLanes);
            }
            const auto kernel = F::template kernel<F, Team, kLanes, Index, X...>();
            constexpr int64_t shared = Team::kShared * kThreads * sizeof(PacketOf<F, kLanes>);
            launch_early<Team::kBlocks>(kernel, dim3(blocks, pieces), kThreads, shared, stream,
                                        rows, partials,
                                        static_cast<typename X::T*>(space.x[i].data)...);
        };
        first_that_reaches<F, lanes>(packets, teams, [&](auto team) {
            with_all_threads<F, lanes, Index>(space.num_rows, team, launch);
        });
        F::Cut::template finish<F, Index, X...>(rows, partials, pieces, stream,
                                                static_cast<typename X::T*>(space.x[i].data)...);
    };
    choose<F>(space.num_rows >= F::kLeastRows && space.packed(), space.flat(), space.is_narrow(),
              run);
    return cudaGetLastError();
}
template <typename F, typename... X>
int reduce(const TensorView* operands, void* stream, Types<X...>) {
    return reduce(Rows<F, X...>(operands), static_cast<cudaStream_t>(stream),
                  std::index_sequence_for<X...>());
}

// @AlongRows deps: rows_along, reduce
struct AlongRows : Row {
    static constexpr bool kAcross = false;
    using Rare = Types<Team<32, 0, 1024>, Team<256>>;
    using Singles = Rare;
    template <typename F, typename Team>
    static constexpr int threads() {
        return kTeamThreads<Team::kThreads>;
    }
    template <typename F, typename Team, int kLanes, typename Index, typename... X>
    static auto kernel() {
        return rows_along<F, Team, kLanes, Index, typename X::T...>;
    }
    template <typename F, typename Team, int kLanes, typename Index, typename... T>
    OPWELD_FN void walk_block(const Layout<F>& rows, Index block, T*... data) {
        along_rows<F, Team, kLanes>(rows, block, nullptr, data...);
    }
};

// @AcrossRows deps: rows_across, reduce
struct AcrossRows : Row {
    static constexpr bool kAcross = true;
    using Rare = Types<Team<8>>;
    template <typename F, typename Team>
    static constexpr int threads() {
        return F::Cut::threads_of(Team::kThreads);
    }
    template <typename F, typename Team, int kLanes, typename Index, typename... X>
    static auto kernel() {
        return rows_across<F, Team, kLanes, Index, typename X::T...>;
    }
    template <typename F, typename Team, int kLanes, typename Index, typename... T>
    OPWELD_FN void walk_block(const Layout<F>& rows, Index block, T*... data) {
        across_rows<F, Team, kLanes>(rows, block, nullptr, data...);
    }
};

// @CutRows deps: reduce, rows_finish, pieces_for, merged_columns, piece_of
// Rows that are cut in pieces, of kLeast elements or more, where a launch of kRows a block would
// not keep the device busy.
template <int kRows, int kLeast, int kMostEach, int kStripsThreads, int kThreads>
struct CutRows {
    static constexpr bool kCuts = true;
    static int64_t pieces(int64_t num_rows, int64_t length) {
        return pieces_for((num_rows + kRows - 1) / kRows, num_rows, length, kLeast, kMostEach);
    }
    static constexpr int threads_of(int strips) { return strips < 8 ? 256 : kStripsThreads; }
    static int64_t piece(int64_t length, int64_t pieces, int64_t lanes) {
        return piece_of(length, pieces, lanes);
    }
    // A block has the elements from `begin` on of its rows, before `end`.
    template <typename Index>
    OPWELD_FN Index begin(Index piece) {
        return blockIdx.y * piece;
    }
    template <typename Index, typename Layout>
    OPWELD_FN Index end(Index begin, const Layout& rows, Index length) {
        const Index behind = begin + Index(rows.piece);
        return behind < length ? behind : length;
    }
    // Where there are several pieces, keeps what is folded of one.
    template <typename Layout, typename Index, typename Folds>
    OPWELD_FN bool keeps(void* partials, const Layout& rows, Index row, const Folds& folds,
                         bool stores) {
        const Index at = blockIdx.y * Index(rows.num_rows) + row;
        if (gridDim.y > 1 && stores) static_cast<Folds*>(partials)[at] = folds;
        return gridDim.y > 1;
    }
    // Bytes of what is folded of the pieces.
    template <typename F, typename... X>
    static int64_t bytes(const TensorView* operands, Types<X...>) {
        const Rows<F, X...> space(operands);
        constexpr int64_t kEach = sizeof(typename F::Pass0::Folds);
        return pieces(space.num_rows, space.length) * space.num_rows * kEach;
    }
    template <typename F, typename Index, typename... X, typename... Data>
    static void finish(const Layout<F>& rows, void* partials, int64_t pieces, cudaStream_t stream,
                       Data... data) {
        if (pieces <= 1) return;
        const int columns = merged_columns<kThreads>(rows.num_rows, pieces);
        const auto kernel = rows_finish<F, kThreads, Index, typename X::T...>;
        const dim3 blocks((rows.num_rows + columns - 1) / columns);
        launch_early(kernel, blocks, kThreads, 0, stream, rows, partials, pieces, columns, data...);
    }
};

}  // namespace op
