// What the parts of the emulation's program share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda_emulation.h"

namespace emulation {

constexpr int kPoison = 0xff;  // floats of it are NaN

// --- runtime.cpp: kernels, blocks, threads ---

void set_order(char order, uint64_t seed);  // f(orward), r(everse) or s(eeded)
std::string place();                        // which thread of which kernel runs now
int thread_in_cluster();
void wait_until(std::function<bool()> condition, int line);

char* shared_pointer_of(size_t block, unsigned offset, int bytes);  // of another block

// --- hopper.cpp: what is asynchronous ---

// A copy into a block of this cluster, whose barrier there gets the bytes.
void start_copy_into(unsigned block, unsigned to, std::vector<char> data, unsigned barrier);

bool land_bulk_copy();  // one; false where none is under way
void require_nothing_under_way();

// --- memory.cpp: guard pages and faults ---

// Memory of its own between unmapped gaps. The data ends at the end gap (less than `alignment`
// bytes before it) or begins at the front one, `shift` bytes past an aligned address.
struct Area {
    char* begin;
    size_t span;
    char* data;
};

Area guarded(size_t bytes, size_t alignment, bool flush_end, size_t shift = 0);
char* guarded_stack(size_t bytes);  // its lowest page stays closed: a stack that overflows faults

// Memory that faults are explained by.
void watch(const std::string& name, char* begin, size_t bytes);
void catch_faults();

}  // namespace emulation
