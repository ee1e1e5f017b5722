// Memory between unmapped pages, and what to say about an access that hits one.
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "runtime.h"

namespace emulation {
namespace {

constexpr int kFaultExit = 70;
constexpr size_t kGapBytes = size_t(1) << 30;  // unmapped, so that far strays fault too

const size_t page_bytes = size_t(sysconf(_SC_PAGESIZE));

struct Region {
    std::string name;
    char* begin;
    size_t bytes;
};

std::vector<Region> regions;

}  // namespace

void fail(const char* format, ...) {
    fflush(stdout);
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(kFaultExit);
}

Area guarded(size_t bytes, size_t alignment, bool flush_end, size_t shift) {
    size_t span = (bytes + alignment + shift + page_bytes - 1) / page_bytes * page_bytes;
    char* base = static_cast<char*>(mmap(nullptr, span + 2 * kGapBytes, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    char* begin = base + kGapBytes;
    if (base == MAP_FAILED || mprotect(begin, span, PROT_READ | PROT_WRITE) != 0)
        fail("no memory for %zu bytes", bytes);
    size_t start = flush_end ? (span - bytes - shift) / alignment * alignment + shift : shift;
    return {begin, span, begin + start};
}

char* guarded_stack(size_t bytes) {
    void* stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) fail("no memory for the threads' stacks");
    mprotect(stack, page_bytes, PROT_NONE);
    char* lowest = static_cast<char*>(stack) + page_bytes;
    watch("a thread's stack", lowest, bytes - page_bytes);
    return static_cast<char*>(stack);
}

void watch(const std::string& name, char* begin, size_t bytes) {
    regions.push_back({name, begin, bytes});
}

void protect(const Argument& a) {
    uintptr_t begin = uintptr_t(a.pointer) / page_bytes * page_bytes;
    size_t span = uintptr_t(a.pointer) + a.bytes - begin;
    if (a.bytes) mprotect(reinterpret_cast<void*>(begin), span, PROT_READ);
}

namespace {

const Region* nearest(const char* address) {
    const Region* best = nullptr;
    size_t best_distance = 2 * kGapBytes;
    for (const Region& r : regions) {
        size_t distance =
            address < r.begin
                ? size_t(r.begin - address)
                : (address < r.begin + r.bytes ? 0 : size_t(address - r.begin - r.bytes));
        if (distance < best_distance) best = &r, best_distance = distance;
    }
    return best;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const char* address = static_cast<const char*>(info->si_addr);
    if (signal == SIGFPE) fail("%s: integer division by zero or overflow", place().c_str());
    const char* access = "access";
#ifdef __x86_64__
    access = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#endif
    const Region* r = nearest(address);
    if (!r) fail("%s: out-of-bounds %s at address %p", place().c_str(), access, info->si_addr);
    long offset = long(address - r->begin);
    if (offset >= 0 && size_t(offset) < r->bytes)
        fail("%s: %s of read-only `%s` at byte %ld", place().c_str(), access, r->name.c_str(),
             offset);
    fail("%s: out-of-bounds %s of `%s` at byte %ld of %zu", place().c_str(), access,
         r->name.c_str(), offset, r->bytes);
}

}  // namespace

void catch_faults() {
    static char stack[64 << 10];
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, nullptr);
}

}  // namespace emulation

// What -fsanitize=alignment,bounds calls; each record begins with the place in the source.
struct SourcePlace {
    const char* file;
    uint32_t line, column;
};
struct MismatchRecord {
    SourcePlace place;
    const void* type;
    unsigned char log_alignment, kind;
};
extern "C" void __ubsan_handle_type_mismatch_v1_abort(MismatchRecord* record, uintptr_t pointer) {
    emulation::fail("%s: line %u: misaligned access: address %% %d is %d",
                    emulation::place().c_str(), record->place.line, 1 << record->log_alignment,
                    int(pointer % (uintptr_t(1) << record->log_alignment)));
}
extern "C" void __ubsan_handle_out_of_bounds_abort(SourcePlace* place, uintptr_t index) {
    emulation::fail("%s: line %u: index %ld is outside the array", emulation::place().c_str(),
                    place->line, long(index));
}
