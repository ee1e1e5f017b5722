// The program: LAUNCHER ORDER SEED GUARD FILE ARGUMENT... It places the arguments between guard
// pages, calls one launcher of the text, and puts the arrays back into the file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "runtime.h"

extern const emulation::Launcher emulation_launchers[];

namespace emulation {
namespace {

struct Placed {
    std::string name;
    Area area;
    size_t bytes;
};
std::vector<Placed> placed;

// p:FILE_OFFSET:BYTES:ALIGNMENT:SHIFT; the data lies at FILE_OFFSET of the file and goes back
// there.
Argument place_array(const char* text, const std::string& name, bool flush_end, int file) {
    long long offset, bytes, alignment, shift;
    if (sscanf(text, "p:%lld:%lld:%lld:%lld", &offset, &bytes, &alignment, &shift) != 4)
        fail("bad argument %s", text);
    Area area = guarded(size_t(bytes), size_t(alignment), flush_end, size_t(shift));
    memset(area.begin, kPoison, area.span);
    if (bytes && pread(file, area.data, size_t(bytes), offset) != bytes)
        fail("cannot read the arguments");
    watch(name, area.data, size_t(bytes));
    placed.push_back({name, area, size_t(bytes)});
    return {'p', area.data, 0, 0, size_t(bytes)};
}

// The bytes between the data and the gap hold poison: a write there is out of bounds as well.
void check_slack(const char* launcher) {
    for (const Placed& p : placed) {
        const char *begin = p.area.data, *end = begin + p.bytes;
        for (const char* c = p.area.begin; c < p.area.begin + p.area.span; ++c)
            if ((c < begin || c >= end) && *c != char(kPoison))
                fail("%s: out-of-bounds write of `%s` at byte %ld of %zu", launcher, p.name.c_str(),
                     long(c - begin), p.bytes);
    }
}

Argument parse(const char* text, const std::string& name, bool flush_end, int file) {
    if (text[0] == 'p') return place_array(text, name, flush_end, file);
    if (text[0] == 'n') return {'p', nullptr, 0, 0, 0};
    if (text[0] == 'i') return {'i', nullptr, atoll(text + 2), 0, 0};
    return {'f', nullptr, 0, strtod(text + 2, nullptr), 0};
}

std::vector<std::string> split(const std::string& names) {
    std::vector<std::string> out;
    for (size_t at = 0; at < names.size();) {
        size_t end = std::min(names.find(',', at), names.size());
        out.push_back(names.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

}  // namespace
}  // namespace emulation

int main(int argc, char** argv) {
    using namespace emulation;
    if (argc < 6) fail("usage: LAUNCHER ORDER SEED GUARD FILE ARGUMENT...");
    set_order(argv[2][0], strtoull(argv[3], nullptr, 10));
    const Launcher* launcher = emulation_launchers;
    while (launcher->name && strcmp(launcher->name, argv[1])) ++launcher;
    if (!launcher->name) fail("there is no launcher %s in the text", argv[1]);
    int file = open(argv[5], O_RDWR);
    if (file < 0) fail("cannot open %s", argv[5]);
    std::vector<std::string> names = split(launcher->parameters);
    std::vector<Argument> arguments;
    for (int i = 6; i < argc; ++i) {
        size_t index = size_t(i - 6);
        std::string name = index < names.size() ? names[index] : "?";
        arguments.push_back(parse(argv[i], name, argv[4][0] == 'e', file));
    }
    catch_faults();
    int result = launcher->run(arguments.data(), int(arguments.size()), launcher->name);
    if (result != cudaSuccess)
        fail("%s returned %d: %s", launcher->name, result, cudaGetErrorString(result));
    check_slack(launcher->name);
    for (int i = 6, j = 0; i < argc; ++i) {
        if (argv[i][0] != 'p') continue;
        const Placed& p = placed[size_t(j++)];
        if (p.bytes && pwrite(file, p.area.data, p.bytes, atoll(argv[i] + 2)) != ssize_t(p.bytes))
            fail("cannot write back");
    }
    return 0;
}
