// Runs emulated kernels: clusters of blocks one after another, the threads of a cluster as fibers
// that change hands at barriers and warp functions.
#include "runtime.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <map>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kDefaultSharedBytes = 48 << 10, kMostSharedBytes = 227 << 10;

enum class Order { kForward, kReverse, kSeeded };
enum class State { kNew, kReady, kAtBarrier, kAtCluster, kAtWarp, kAtCondition, kDone };

struct Fiber {
    jmp_buf context;
    char* stack;
    bool started = false;
};

struct Thread {
    State state;
    Fiber* fiber;
    int line;
    Count count;
    int predicate;
    Exchange kind;
    unsigned mask;
    int operand, width;
    uint64_t value;
    std::function<bool()> condition;
};

Order order = Order::kForward;
uint64_t random_state = 1;
const char* kernel_name;
bool in_kernel = false;
cudaError_t last_error = cudaSuccess;
size_t allowed_shared_bytes = kDefaultSharedBytes;

std::vector<Thread> threads;  // of all blocks of the cluster that runs
size_t block_threads, first_block;
std::vector<Fiber*> free_fibers;
jmp_buf scheduler;
ucontext_t scheduler_context;
int current;
void (*kernel_body)(const void*);
const void* kernel_closure;

uint64_t random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

template <typename T>
void arrange(std::vector<T>& items) {
    if (order == Order::kReverse) std::reverse(items.begin(), items.end());
    if (order != Order::kSeeded) return;
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random_number() % i]);
}

uint3 block_position(size_t i) {
    return {unsigned(i % gridDim.x), unsigned(i / gridDim.x % gridDim.y),
            unsigned(i / (size_t(gridDim.x) * gridDim.y))};
}

uint3 position(unsigned i) {
    i %= unsigned(block_threads);
    return {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
}

void become(int i) {
    current = i;
    threadIdx = position(unsigned(i));
    blockIdx = block_position(first_block + size_t(i) / block_threads);
}

void fiber_main() {
    for (;;) {
        kernel_body(kernel_closure);
        threads[current].state = State::kDone;
        free_fibers.push_back(threads[current].fiber);
        Fiber* self = threads[current].fiber;
        if (_setjmp(self->context) == 0) _longjmp(scheduler, 1);
    }
}

Fiber* take_fiber() {
    if (!free_fibers.empty()) {
        Fiber* fiber = free_fibers.back();
        free_fibers.pop_back();
        return fiber;
    }
    return new Fiber{{}, guarded_stack(kStackBytes)};
}

void resume(int i) {
    Thread& thread = threads[i];
    become(i);
    if (thread.state == State::kNew) thread.fiber = take_fiber();
    thread.state = State::kReady;
    if (_setjmp(scheduler) != 0) return;
    if (thread.fiber->started) _longjmp(thread.fiber->context, 1);
    thread.fiber->started = true;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = thread.fiber->stack;
    start.uc_stack.ss_size = kStackBytes;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
    swapcontext(&scheduler_context, &start);
}

void wait(State state) {
    threads[current].state = state;
    if (_setjmp(threads[current].fiber->context) == 0) _longjmp(scheduler, 1);
}

// --- asynchronous copies ---

// A copy is seen where its thread waits for it; until then its target holds poison.
struct Copy {
    char* to;
    int size;
    char data[16];
};
struct Copies {
    std::vector<Copy> started;
    std::vector<std::vector<Copy>> groups;
};
constexpr size_t kMostBlocks = 132;  // that run side by side
Copies copies[1024 * kMostBlocks];

// --- warps ---

struct Warp {
    int first, size;
    Thread& lane(int i) const { return threads[size_t(first + i)]; }
    bool live(int i) const { return i < size && lane(i).state != State::kDone; }
};

bool same_call(const Thread& a, const Thread& b) {
    return a.state == b.state && a.kind == b.kind && a.mask == b.mask && a.line == b.line;
}

bool all_arrived(const Warp& warp, const Thread& caller) {
    for (int i = 0; i < 32; ++i)
        if ((caller.mask >> i & 1) && warp.live(i) && !same_call(warp.lane(i), caller))
            return false;
    return true;
}

int source_lane(const Thread& t, int i) {
    int group = i / t.width * t.width, within = i - group;
    switch (t.kind) {
        case Exchange::kIdx:
            return group + (t.operand & (t.width - 1));
        case Exchange::kUp:
            return within - t.operand >= 0 ? i - t.operand : i;
        case Exchange::kDown:
            return within + t.operand < t.width ? i + t.operand : i;
        default:
            return (i ^ t.operand) < group + t.width ? i ^ t.operand : i;
    }
}

uint64_t vote(const Warp& warp, const Thread& caller) {
    uint32_t ones = 0, lanes = 0;
    uint64_t most = 0;
    for (int i = 0; i < 32; ++i) {
        if (!(caller.mask >> i & 1) || !warp.live(i)) continue;
        lanes |= 1u << i;
        ones |= uint32_t(warp.lane(i).value != 0) << i;
        most = std::max(most, warp.lane(i).value);
    }
    if (caller.kind == Exchange::kMax) return most;
    if (caller.kind == Exchange::kBallot) return ones;
    return caller.kind == Exchange::kAll ? ones == lanes : ones != 0;
}

void shuffle(const Warp& warp, unsigned mask) {
    uint64_t values[32] = {};
    for (int i = 0; i < 32; ++i)
        if (warp.live(i)) values[i] = warp.lane(i).value;
    for (int i = 0; i < 32; ++i) {
        if (!(mask >> i & 1) || !warp.live(i)) continue;
        Thread& t = warp.lane(i);
        int from = source_lane(t, i);
        become(warp.first + i);
        if (!(mask >> from & 1) || !warp.live(from))
            fail("%s: shuffle at line %d reads lane %d, which does not take part", place().c_str(),
                 t.line, from);
        t.value = values[from];
    }
}

void complete(const Warp& warp, const Thread& caller) {
    unsigned mask = caller.mask;
    Exchange kind = caller.kind;
    if (kind >= Exchange::kBallot) {
        uint64_t result = vote(warp, caller);
        for (int i = 0; i < 32; ++i)
            if ((mask >> i & 1) && warp.live(i)) warp.lane(i).value = result;
    } else if (kind != Exchange::kNone) {
        shuffle(warp, mask);
    }
    for (int i = 0; i < 32; ++i)
        if ((mask >> i & 1) && warp.live(i)) warp.lane(i).state = State::kReady;
}

bool release_warps() {
    bool released = false;
    for (int first = 0; first < int(threads.size()); first += 32) {
        Warp warp{first, std::min(32, int(threads.size()) - first)};
        for (int i = 0; i < warp.size; ++i) {
            if (warp.lane(i).state != State::kAtWarp || !all_arrived(warp, warp.lane(i))) continue;
            complete(warp, warp.lane(i));
            released = true;
        }
    }
    return released;
}

// --- blocks ---

const char* describe(const Thread& t) {
    static char text[2][96];
    static int next = 0;
    char* out = text[next ^= 1];
    const char* what = t.state == State::kAtBarrier     ? "waits at __syncthreads"
                       : t.state == State::kAtCluster   ? "waits for its cluster"
                       : t.state == State::kAtCondition ? "waits at a barrier of its own"
                                                        : "waits at a warp function";
    if (t.state == State::kDone) return "has ended";
    snprintf(out, 96, "%s, line %d", what, t.line);
    return out;
}

// Every thread waits or has ended; whoever is not where thread `at` is, is to blame.
[[noreturn]] void report_divergence() {
    size_t at = 0;
    while (threads[at].state == State::kDone) ++at;
    size_t other = 0;
    while (threads[other].state == threads[at].state && threads[other].line == threads[at].line &&
           other + 1 < threads.size())
        ++other;
    uint3 a = position(unsigned(at)), b = position(unsigned(other));
    in_kernel = false;
    fail(
        "kernel %s, block (%u, %u, %u): barrier divergence: thread (%u, %u, %u) %s while thread "
        "(%u, %u, %u) %s",
        kernel_name, blockIdx.x, blockIdx.y, blockIdx.z, a.x, a.y, a.z, describe(threads[at]), b.x,
        b.y, b.z, describe(threads[other]));
}

bool release_block(size_t begin) {
    const size_t end = begin + block_threads;
    int sum = 0, live = 0;
    for (size_t i = begin; i < end; ++i) {
        const Thread& t = threads[i];
        if (t.state != State::kAtBarrier || t.line != threads[begin].line ||
            t.count != threads[begin].count)
            return false;
        sum += t.predicate;
        ++live;
    }
    for (size_t i = begin; i < end; ++i) {
        Thread& t = threads[i];
        t.predicate =
            t.count == Count::kSum ? sum : (t.count == Count::kAnd ? sum == live : sum != 0);
        t.state = State::kReady;
    }
    return true;
}

bool release_blocks() {
    bool released = false;
    for (size_t begin = 0; begin < threads.size(); begin += block_threads)
        released = release_block(begin) || released;
    return released;
}

bool release_cluster() {
    for (const Thread& t : threads)
        if (t.state != State::kAtCluster) return false;
    for (Thread& t : threads) t.state = State::kReady;
    return true;
}

bool release_conditions() {
    bool released = false;
    for (Thread& t : threads) {
        if (t.state != State::kAtCondition || !t.condition()) continue;
        t.state = State::kReady;
        released = true;
    }
    return released;
}

bool all_done() {
    return std::all_of(threads.begin(), threads.end(),
                       [](const Thread& t) { return t.state == State::kDone; });
}

bool any_ready() {
    return std::any_of(threads.begin(), threads.end(),
                       [](const Thread& t) { return t.state == State::kReady; });
}

void require_no_copies(size_t num_threads) {
    for (size_t i = 0; i < num_threads; ++i) {
        bool open = !copies[i].started.empty();
        for (const auto& group : copies[i].groups) open = open || !group.empty();
        copies[i] = Copies{};
        if (!open) continue;
        become(int(i));
        fail("%s: ends before a copy that it has started", place().c_str());
    }
}

void run_cluster(size_t num_threads) {
    threads.assign(num_threads, Thread{});
    std::vector<int> turns(num_threads);
    for (size_t i = 0; i < num_threads; ++i) turns[i] = int(i);
    arrange(turns);
    for (;;) {
        for (int i : turns)
            if (threads[size_t(i)].state <= State::kReady) resume(i);
        if (all_done()) {
            require_nothing_under_way();
            return require_no_copies(num_threads);
        }
        const bool released = release_warps() || release_blocks() || release_cluster() ||
                              release_conditions() || any_ready();
        if (!released && !land_bulk_copy()) report_divergence();
    }
}

// --- shared memory ---

struct Shared {
    std::string name;
    char* data;
    size_t bytes;
};
using Place = std::pair<size_t, const void*>;  // block of the cluster, variable
std::map<Place, Shared> shared_variables;      // of the running kernel
std::vector<char*> dynamic_data;               // of each block
size_t dynamic_bytes = 0;

size_t rank() { return size_t(current) / block_threads; }

void open_shared(size_t bytes, size_t num_blocks) {
    shared_variables.clear();
    dynamic_data.clear();
    dynamic_bytes = bytes;
    for (size_t i = 0; i < num_blocks; ++i) {
        const size_t alignment = bytes % 1024 ? 16 : 1024;  // tiles that are swizzled
        dynamic_data.push_back(guarded(bytes, alignment, true).data);
        watch("dynamic shared memory", dynamic_data[i], bytes);
    }
}

void poison_shared() {
    for (char* data : dynamic_data) memset(data, kPoison, dynamic_bytes);
    for (auto& entry : shared_variables) memset(entry.second.data, kPoison, entry.second.bytes);
}

bool refuse(bool condition) {
    if (condition) last_error = cudaErrorInvalidConfiguration;
    return condition;
}

}  // namespace

void set_order(char first_letter, uint64_t seed) {
    order = first_letter == 'f' ? Order::kForward
                                : (first_letter == 'r' ? Order::kReverse : Order::kSeeded);
    random_state = seed * 2 + 1;
}

std::string place() {
    if (!in_kernel) return "outside a kernel";
    char text[256];
    snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", kernel_name,
             blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    return text;
}

void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
              void (*body)(const void*), const void* closure, unsigned cluster) {
    size_t num_threads = size_t(block.x) * block.y * block.z,
           num_blocks = size_t(grid.x) * grid.y * grid.z;
    if (refuse(num_threads == 0 || num_threads > 1024 || block.z > 64 || num_blocks == 0)) return;
    if (refuse(cluster == 0 || cluster > kMostBlocks || grid.x % cluster)) return;
    if (refuse(cluster > 1 && (num_threads % 32 || grid.y > 1 || grid.z > 1))) return;
    if (refuse(grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)) return;
    if (shared_bytes > allowed_shared_bytes) {
        last_error = cudaErrorInvalidValue;
        return;
    }
    kernel_name = kernel;
    kernel_body = body;
    kernel_closure = closure;
    blockDim = block;
    gridDim = grid;
    block_threads = num_threads;
    open_shared(shared_bytes, cluster);
    std::vector<size_t> turns(num_blocks / cluster);
    for (size_t i = 0; i < turns.size(); ++i) turns[i] = i * cluster;
    arrange(turns);
    in_kernel = true;
    for (size_t i : turns) {
        first_block = i;
        blockIdx = block_position(i);
        poison_shared();
        run_cluster(num_threads * cluster);
    }
    in_kernel = false;
}

int block_barrier(Count count, int predicate, int line) {
    Thread& self = threads[size_t(current)];
    self.line = line;
    self.count = count;
    self.predicate = predicate != 0;
    wait(State::kAtBarrier);
    return self.predicate;
}

void cluster_barrier(int line) {
    threads[size_t(current)].line = line;
    wait(State::kAtCluster);
}

int thread_in_cluster() { return current; }

size_t block_in_cluster() { return rank(); }

unsigned blocks_of_cluster() { return unsigned(threads.size() / block_threads); }

void wait_until(std::function<bool()> condition, int line) {
    if (condition()) return;
    threads[size_t(current)].line = line;
    threads[size_t(current)].condition = std::move(condition);
    wait(State::kAtCondition);
}

void let_others_run(int line) {
    if (threads.size() == block_threads) return;  // blocks that run alone see all there will be
    threads[size_t(current)].line = line;
    wait(State::kReady);
}

size_t pick(size_t count) {
    if (order == Order::kSeeded) return random_number() % count;
    return order == Order::kForward ? 0 : count - 1;
}

uint64_t warp_exchange(Exchange kind, unsigned mask, uint64_t value, int operand, int width,
                       int line) {
    if (!(mask >> (current & 31) & 1))
        fail("%s: line %d: a warp function's mask %08x leaves its caller out", place().c_str(),
             line, mask);
    if (width <= 0 || width > 32 || (width & (width - 1)))
        fail("%s: line %d: shuffle width %d is not a power of two", place().c_str(), line, width);
    Thread& self = threads[size_t(current)];
    self.kind = kind;
    self.mask = mask;
    self.value = value;
    self.operand = operand;
    self.width = width;
    self.line = line;
    wait(State::kAtWarp);
    return self.value;
}

unsigned active_lanes() { return 1u << (current & 31); }

void* shared_variable(const void* key, const char* name, size_t bytes, size_t alignment) {
    const Place own{rank(), key};
    auto found = shared_variables.find(own);
    if (found != shared_variables.end()) return found->second.data;
    size_t total = dynamic_bytes + bytes;
    for (const auto& entry : shared_variables)
        if (entry.first.first == own.first) total += entry.second.bytes;
    if (total - dynamic_bytes > kDefaultSharedBytes || total > kMostSharedBytes)
        fail("%s: %zu bytes of shared memory do not fit", place().c_str(), total);
    char* data = guarded(bytes, alignment, true).data;
    memset(data, kPoison, bytes);
    watch(std::string("shared ") + name, data, bytes);
    shared_variables[own] = {name, data, bytes};
    return data;
}

void* dynamic_shared() { return dynamic_data[rank()]; }

// The same place in the shared memory of another block of the cluster.
const void* peer_place(const void* mine, unsigned block) {
    const char* at = static_cast<const char*>(mine);
    for (const auto& entry : shared_variables) {
        const Shared& own = entry.second;
        if (entry.first.first != rank() || at < own.data || at >= own.data + own.bytes) continue;
        auto found = shared_variables.find({block, entry.first.second});
        if (found == shared_variables.end())
            fail("%s: block %u of the cluster has no %s yet", place().c_str(), block,
                 own.name.c_str());
        return found->second.data + (at - own.data);
    }
    fail("%s: an address outside of shared memory is used as one inside", place().c_str());
}

// Shared memory by number: each variable has a megabyte of its own, the dynamic one the first.
unsigned shared_offset(const void* p) {
    const char* at = static_cast<const char*>(p);
    const char* dynamic = dynamic_data[rank()];
    if (at >= dynamic && at <= dynamic + dynamic_bytes) return unsigned(at - dynamic);
    unsigned number = 0;
    for (const auto& entry : shared_variables) {
        ++number;
        const char* begin = entry.second.data;
        if (at >= begin && at <= begin + entry.second.bytes)
            return (number << 20) + unsigned(at - begin);
    }
    fail("%s: an address outside of shared memory is used as one inside", place().c_str());
}

char* shared_pointer(unsigned offset, int bytes) {
    return shared_pointer_of(rank(), offset, bytes);
}

char* shared_pointer_of(size_t block, unsigned offset, int bytes) {
    if (block >= dynamic_data.size())
        fail("%s: there is no block %zu in the cluster", place().c_str(), block);
    size_t within = offset & 0xfffffu;
    char* begin = dynamic_data[block];
    size_t extent = dynamic_bytes;
    if (offset >> 20) {
        if (block != rank())
            fail("%s: only dynamic shared memory is one of the cluster", place().c_str());
        if ((offset >> 20) > shared_variables.size())
            fail("%s: out-of-bounds shared memory", place().c_str());
        auto entry = std::next(shared_variables.begin(), (offset >> 20) - 1);
        begin = entry->second.data;
        extent = entry->second.bytes;
    }
    if (within + size_t(bytes) > extent)
        fail("%s: out-of-bounds access of shared memory at byte %zu of %zu", place().c_str(),
             within, extent);
    if (within % size_t(bytes))
        fail("%s: misaligned access of shared memory at byte %zu", place().c_str(), within);
    return begin + within;
}

void start_copy(char* to, const void* from, int size, int bytes, int line) {
    if (uintptr_t(from) % unsigned(size) && bytes)
        fail("%s: line %d: misaligned access: a copy of %d bytes", place().c_str(), line, size);
    Copy copy{to, size, {}};
    if (bytes) memcpy(copy.data, from, size_t(bytes));
    memset(to, kPoison, size_t(size));
    copies[current].started.push_back(copy);
}

void commit_copies() {
    Copies& own = copies[current];
    own.groups.push_back(std::move(own.started));
    own.started.clear();
}

void await_copies(int open) {
    auto& groups = copies[current].groups;
    while (int(groups.size()) > open) {
        for (const Copy& copy : groups.front()) memcpy(copy.to, copy.data, size_t(copy.size));
        groups.erase(groups.begin());
    }
}

void allow_dynamic_shared(int bytes) {
    allowed_shared_bytes = std::max(allowed_shared_bytes, size_t(bytes));
}

}  // namespace emulation

cudaError_t cudaGetLastError() {
    cudaError_t error = emulation::last_error;
    emulation::last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return emulation::last_error; }
const char* cudaGetErrorString(cudaError_t error) {
    if (error == cudaSuccess) return "no error";
    return error == cudaErrorInvalidValue ? "invalid argument" : "invalid configuration argument";
}
