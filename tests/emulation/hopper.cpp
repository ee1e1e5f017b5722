// Barriers in shared memory, bulk copies and warpgroup products of emulated kernels.
#include <map>

#include "runtime.h"

namespace emulation {
namespace {

struct BulkCopy {
    char* to;
    std::vector<char> data;
    PhaseBarrier* barrier;
};
std::vector<BulkCopy> bulk_copies;  // under way

struct NamedBarrier {
    int arrived = 0;
    uint64_t rounds = 0;
};
std::map<std::pair<size_t, int>, NamedBarrier> named_barriers;  // by block and number

struct Product {
    float* sums;
    int columns;
    bool from_registers, add, tf32;
    RowPair rows;
    uint64_t a, b;
};
struct Products {
    std::vector<Product> started;
    std::vector<std::vector<Product>> groups;
};
std::map<int, Products> products;  // by thread

PhaseBarrier* barrier_at(unsigned offset) {
    return reinterpret_cast<PhaseBarrier*>(shared_pointer(offset, 8));
}

PhaseBarrier* barrier_of(unsigned block, unsigned offset) {
    return reinterpret_cast<PhaseBarrier*>(shared_pointer_of(block, offset, 8));
}

void end_phase(PhaseBarrier& barrier) {
    if (barrier.missing || barrier.bytes) return;
    barrier.parity ^= 1;
    barrier.missing = barrier.expected;
}

void arrive_at(PhaseBarrier& barrier, int bytes) {
    if (barrier.missing == 0) fail("%s: one arrival too many at a barrier", place().c_str());
    barrier.bytes += bytes;
    barrier.missing -= 1;
    end_phase(barrier);
}

// 16 values of k of row `row` of a tile, or 8 of 32 bits and zeros: rows of 128, 64 or 32 bytes,
// eight to a group, swizzled.
void load_row(float (&values)[16], uint64_t descriptor, int row, bool tf32) {
    const unsigned layout = unsigned(descriptor >> 62);
    if (layout == 0) fail("%s: a tile without a swizzle", place().c_str());
    const unsigned row_bytes = 256u >> layout;
    const unsigned group = unsigned(descriptor >> 32 & 0x3FFF) << 4;
    const unsigned begin = unsigned(descriptor & 0x3FFF) << 4;
    const unsigned at = begin + unsigned(row / 8) * group + unsigned(row % 8) * row_bytes;
    for (unsigned half = 0; half < 2; ++half) {
        const unsigned byte = at + half * 16;
        const char* from = shared_pointer(swizzled(byte, row_bytes), 16);
        for (unsigned i = 0; tf32 && i < 4; ++i) {
            uint32_t word;
            memcpy(&word, from + 4 * i, 4);
            values[4 * half + i] = tf32_of(word);
            values[8 + 4 * half + i] = 0.0f;
        }
        if (tf32) continue;
        for (unsigned i = 0; i < 8; ++i) {
            _Float16 value;
            memcpy(&value, from + 2 * i, 2);
            values[8 * half + i] = float(value);
        }
    }
}

void make_product(const Product& product) {
    const int lane = thread_number() % 32, first = thread_number() % 128 / 32 * 16 + lane / 4;
    RowPair rows = product.rows;
    for (int j = 0; j < 2 && !product.from_registers; ++j)
        load_row(rows.value[j], product.a, first + 8 * j, product.tf32);
    for (int i = 0; i < product.columns / 8; ++i)
        for (int c = 0; c < 2; ++c) {
            float column[16];
            load_row(column, product.b, 8 * i + lane % 4 * 2 + c, product.tf32);
            for (int j = 0; j < 2; ++j) {
                float& sum = product.sums[4 * i + 2 * j + c];
                sum = tensor_core_sum(product.add ? sum : 0.0f, rows.value[j], column);
            }
        }
}

}  // namespace

void arrive(unsigned at, int bytes) { arrive_at(*barrier_at(at), bytes); }

void arrive_at_block(unsigned at, unsigned block) { arrive_at(*barrier_of(block, at), 0); }

void wait_for_phase(unsigned at, uint32_t parity, int line) {
    const PhaseBarrier* barrier = barrier_at(at);
    wait_until([=] { return barrier->parity != parity; }, line);
}

void start_bulk_copy(unsigned to, const void* from, int bytes, unsigned barrier, int line) {
    if (bytes % 16 || uintptr_t(from) % 16 || to % 16)
        fail("%s: line %d: misaligned access: a bulk copy", place().c_str(), line);
    const char* data = static_cast<const char*>(from);
    start_copy_into(unsigned(block_in_cluster()), to, {data, data + bytes}, barrier);
}

void start_copy_into(unsigned block, unsigned to, std::vector<char> data, unsigned barrier) {
    shared_pointer_of(block, to + unsigned(data.size()) - 16, 16);
    char* target = shared_pointer_of(block, to, 16);
    memset(target, kPoison, data.size());
    bulk_copies.push_back({target, std::move(data), barrier_of(block, barrier)});
}

bool land_bulk_copy() {
    if (bulk_copies.empty()) return false;
    const size_t i = pick(bulk_copies.size());
    const BulkCopy copy = std::move(bulk_copies[i]);
    bulk_copies.erase(bulk_copies.begin() + long(i));
    memcpy(copy.to, copy.data.data(), copy.data.size());
    copy.barrier->bytes -= int(copy.data.size());
    end_phase(*copy.barrier);
    return true;
}

void sync_threads(int barrier, int count, bool waits, int line) {
    NamedBarrier& named = named_barriers[{block_in_cluster(), barrier}];
    const uint64_t round = named.rounds;
    if (++named.arrived == count) {
        named.arrived = 0;
        named.rounds += 1;
        return;
    }
    if (waits) wait_until([=, &named] { return named.rounds != round; }, line);
}

void start_product(float* sums, int columns, const RowPair* rows, uint64_t a, uint64_t b, bool add,
                   bool tf32) {
    products[thread_in_cluster()].started.push_back(
        {sums, columns, rows != nullptr, add, tf32, rows ? *rows : RowPair{}, a, b});
}

void commit_products() {
    Products& own = products[thread_in_cluster()];
    own.groups.push_back(std::move(own.started));
    own.started.clear();
}

void await_products(int open) {
    auto& groups = products[thread_in_cluster()].groups;
    while (int(groups.size()) > open) {
        for (const Product& product : groups.front()) make_product(product);
        groups.erase(groups.begin());
    }
}

void require_nothing_under_way() {
    if (!bulk_copies.empty())
        fail("%s: ends before a bulk copy that it has started", place().c_str());
    for (const auto& entry : products)
        if (!entry.second.started.empty() || !entry.second.groups.empty())
            fail("%s: ends before products that it has started", place().c_str());
    named_barriers.clear();
    products.clear();
}

}  // namespace emulation
