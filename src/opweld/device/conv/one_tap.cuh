// Convolutions of one tap and of stride 1 (1x1) on Hopper's tensor cores: products whose operand a
// is the input where it lies, with its channels last or first. The tensor memory accelerator brings
// boxes of 32 channels by 32 pixels; the threads that multiply round values to 11 bits as they take
// them to registers, so that range, Inf and NaN are those of float32.

namespace op {

// @PixelBoxes deps: Convolution, Divisor, PackedOperands, make_tensor_map
// The boxes that pixels come in, each of one image; pixels without gaps from image to image are
// those of one. Values are 32 bits, which the copy engine takes for pairs of 16.
struct PixelBoxes {
    CUtensorMap map;
    bool channels_last;
    int images, pixels, of_image;  // pixels and boxes of an image
    Divisor boxes;                 // by those of an image

    static constexpr int kBox = 32, kWidth = 32, kBytes = kBox * kWidth * 4;  // pixels, channels

    // Whether the copy engine takes pixels as they lie.
    static bool takes(const Convolution& c) {
        const int64_t pixel = pixel_of(c), row = c.channel == 1 ? pixel : c.channel;
        const int64_t rows = c.channel == 1 ? c.pixels() : c.channels;
        const int64_t of_row = c.channel == 1 ? c.channels : c.pixels();
        const bool is_known = c.channel == 1 || pixel == 1;
        const bool disjoint =
            row >= of_row && (c.batches == 1 || c.batch >= (rows - 1) * row + of_row);
        const bool aligned = row % 4 == 0 && (c.batches == 1 || c.batch % 4 == 0);
        return is_known && disjoint && aligned && reinterpret_cast<uintptr_t>(c.x) % 16 == 0;
    }
    // How far pixels lie apart; images of one are pixels themselves.
    static int64_t pixel_of(const Convolution& c) { return c.pixels() == 1 ? c.batch : c.pixel; }

    int open(const Convolution& c) {
        const int64_t pixel = pixel_of(c), step = c.channel == 1 ? pixel : c.channel;
        channels_last = c.channel == 1;
        const bool one = channels_last && (c.batches == 1 || c.batch == c.pixels() * pixel);
        images = one ? 1 : int(c.batches);
        pixels = int(one ? c.batches * c.pixels() : c.pixels());
        of_image = (pixels + kBox - 1) / kBox;
        boxes = Divisor(of_image);
        const int64_t rows = channels_last ? pixels : c.channels;
        const int64_t row = channels_last ? c.channels : pixels;
        return make_tensor_map(&map, {c.x, images, 2 * c.batch, rows, 2 * step, 2 * row}, kBox, 64);
    }
    int count() const { return images * of_image; }
    // Of a box, beyond the last of which is none: its image, and its first pixel in that.
    __device__ __forceinline__ int image_of(int box) const {
        return int(boxes.quotient(unsigned(box)));
    }
    __device__ __forceinline__ int first_of(int box, int image) const {
        return (box - image * of_image) * kBox;
    }
};

// @OneTapSize deps: Barrier, PixelBoxes, Tf32, tile_memory
// Tiles of 128 pixels by kColumns filters, of which two warpgroups make 64 pixels each. Where 64
// columns leave room for it two blocks share a multiprocessor: one gives its sums while the other
// makes some. Of 128 columns sums are made sooner, for fewer bytes come to the multiprocessor, and
// there are registers to promote them.
template <int kColumns>
struct OneTapSize {
    static constexpr int kTileM = 128, kTileN = kColumns, kBlocks = 1;
    static constexpr int kResident = kColumns == 64 ? 2 : 1, kStages = kColumns == 64 ? 3 : 5;
    static constexpr int kWidth = PixelBoxes::kWidth, kBoxes = kTileM / PixelBoxes::kBox;
    // Beside the threads that multiply is a warpgroup of which one loads; it lends registers.
    static constexpr int kSummers = 256, kThreads = kSummers + 128;
    static constexpr int kSumRegisters = kResident == 1 ? 232 : 104;
    static constexpr int kLoaderRegisters = kResident == 1 ? 40 : 32;
    static constexpr bool kPromotes = kResident == 1;
    // Stages whose products the tensor cores add up by themselves: they cut each sum off, which
    // of 128 channels is below the rounding of operands even where all have one sign.
    static constexpr int kChain = 128 / kWidth;
    static constexpr int kReleases = kSummers / 32;  // of a stage: each warp has taken its pixels
    using Mode = Tf32;
    // Where a warp lays out 64 columns of its part of a tile. Neighbouring rows are 4 banks apart.
    static constexpr int kPitch = 64 + 4;
    using Rows = float[16][kPitch];
    struct Memory {
        struct Stage {
            alignas(1024) unsigned char a[kBoxes * PixelBoxes::kBytes];
            alignas(1024) unsigned char b[kTileN * kWidth * 4];
        };
        Stage stage[kStages];
        alignas(16) Rows rows[kSummers / 32];
        Barrier full[kStages], empty[kStages];
    };
    static constexpr int kBytes = kTileMemoryBytes<Memory>;
};

// @round_filters_kernel deps: start_dependents, tf32_word
// Rounds filters, 8 channels a thread. Where the channels of pixels are `first` in memory a thread
// that multiplies takes neighbouring ones: of each eight, those of even numbers come first.
static __global__ void __launch_bounds__(256)
    round_filters_kernel(const float* __restrict__ filters, uint32_t* __restrict__ rounded,
                         const int64_t channels, const int eights, const int64_t count,
                         const bool first) {
    start_dependents();
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64_t filter = i / eights, begin = (i - filter * eights) * 8;
#pragma unroll
    for (int place = 0; place < 8; ++place) {
        const int64_t channel = begin + (first ? place % 4 * 2 + place / 4 : place);
        const float value = channel < channels ? filters[filter * channels + channel] : 0.0f;
        rounded[i * 8 + place] = tf32_word(value);
    }
}

// @OneTapLoader deps: OneTapSize, PixelBoxes, Ring, TileGrid, copy_tile, prefetch_map
// Brings all stages of all tiles of a block, in order, by one thread.
struct OneTapLoader {
    PixelBoxes pixels;
    CUtensorMap filters;

    template <typename T>
    __device__ __forceinline__ void fill(typename T::Memory& memory, const TileGrid& grid) const {
        prefetch_map(&pixels.map);
        prefetch_map(&filters);
        const int step_x = pixels.channels_last ? 2 * T::kWidth : 0;
        const int step_y = pixels.channels_last ? 0 : T::kWidth;
        Ring<T::kStages> ring;
        ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
        for (int index = int(blockIdx.x); index < grid.count(); index += int(gridDim.x)) {
            const TileAt tile(grid, index);
            int x[T::kBoxes], y[T::kBoxes], image[T::kBoxes];
#pragma unroll
            for (int i = 0; i < T::kBoxes; ++i) {
                const int box = tile.row * T::kBoxes + i;
                image[i] = pixels.image_of(box);
                const int first = pixels.first_of(box, image[i]);
                x[i] = pixels.channels_last ? tile.first * step_x : 2 * first;
                y[i] = pixels.channels_last ? first : tile.first * step_y;
            }
#pragma unroll 1
            for (int chunk = tile.first; chunk < tile.last; ++chunk) {
                auto& stage = memory.stage[ring.stage];
                Barrier& full = memory.full[ring.stage];
                memory.empty[ring.stage].wait(ring.parity);
                full.expect(sizeof(stage.a) + sizeof(stage.b));
                copy_tile<false>(stage.b, &filters, full, chunk * 2 * T::kWidth,
                                 tile.column * T::kTileN, 0, 0);
#pragma unroll
                for (int i = 0; i < T::kBoxes; ++i) {
                    copy_tile<false>(stage.a + i * PixelBoxes::kBytes, &pixels.map, full, x[i],
                                     y[i], image[i], 0);
                    x[i] += step_x, y[i] += step_y;
                }
                ring.advance();
            }
        }
    }
};

// @PixelWords deps: PixelBoxes, own_thread, tf32_word
// What a thread takes of a stage's pixels: of two rows, 8 apart, two channels of each eight. Words
// are read without bank conflicts: with channels last, eight pixels by four neighbouring channels;
// first, four even or odd channels by eight neighbouring pixels.
struct PixelWords {
    int begin;

    __device__ __forceinline__ explicit PixelWords(bool channels_last) {
        const int thread = own_thread(), warp = thread / 32, lane = thread % 32;
        const int row = lane / 4, pair = lane % 4, half = warp % 2;  // of a box
        const int pixel = (half * 4 + row / 4) ^ 2 * pair;           // four of them
        begin =
            warp / 2 * PixelBoxes::kBytes + (channels_last ? half * 2048 + row * 144 + pair * 4
                                                           : pair * 256 + pixel * 16 + row % 4 * 4);
    }
    // words[step][i]: see wgmma_tf32. Places are found anew each time: there are no
    // registers to keep them in.
    __device__ __forceinline__ void load(uint32_t (&words)[4][4], const unsigned char* stage,
                                         bool channels_last) const {
        int at = begin;
        asm volatile("" : "+r"(at));
        const auto word = [&](int place) {
            return tf32_word(*reinterpret_cast<const float*>(stage + place));
        };
        if (channels_last) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                words[i / 4][i % 4] = word((at ^ (i / 4 * 2 + i % 4 / 2) * 16) + i % 2 * 1024);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                words[i / 4][i % 4] = word((at ^ i % 4 / 2 * 144 ^ i % 2 * 32) + i / 4 * 1024);
            }
        }
    }
};

// @sum_one_tap deps: OneTapSize, PixelWords, Ring, Type, tile_descriptor, wgmma_order
// A warpgroup's part of a tile, 64 pixels: those of one stage are taken while products of the one
// before are under way.
template <typename T>
OPWELD_FN void sum_one_tap(float (&sums)[T::kTileN / 2], typename T::Memory& memory,
                           Ring<T::kStages>& ring, int stages, const PixelWords& pixels,
                           bool channels_last) {
    uint32_t even[4][4], odd[4][4];  // stages
    float promoted[T::kTileN / 2] = {};
    const auto take = [&](uint32_t(&words)[4][4]) {
        memory.full[ring.stage].wait(ring.parity);
        pixels.load(words, memory.stage[ring.stage].a, channels_last);
    };
    // Has the words of the stage behind taken meanwhile.
    const auto multiply = [&](const uint32_t(&words)[4][4], uint32_t(&next)[4][4], int i) {
        const int stage = ring.stage, before = T::kPromotes ? i % T::kChain : i;
        const bool more = i + 1 < stages;
        const uint64_t b = tile_descriptor(memory.stage[stage].b);
        pin(sums);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            wgmma_tf32(Type<float>(), sums, words[step], b + 2 * step, before > 0 || step > 0);
        }
        wgmma_commit();
        ring.advance();
        if (more) take(next);
        wgmma_wait<0>();
        pin(sums);
        if (own_thread() % 32 == 0) memory.empty[stage].arrive();
        if (T::kPromotes && (before == T::kChain - 1 || !more)) {
#pragma unroll
            for (int j = 0; j < T::kTileN / 2; ++j) promoted[j] += sums[j];
        }
    };
    take(even);
#pragma unroll 1
    for (int i = 0; i < stages; i += 2) {
        multiply(even, odd, i);
        if (i + 1 < stages) multiply(odd, even, i + 1);
    }
    if constexpr (T::kPromotes) {
#pragma unroll
        for (int j = 0; j < T::kTileN / 2; ++j) sums[j] = promoted[j];
    }
}

// @one_tap_kernel deps: OneTapLoader, dependents, give_laid_out, make_stages, setmaxnreg, sum_one_tap
// `m` pixels of `n` filters.
template <typename T, typename Epilogue>
static __global__ void __launch_bounds__(T::kThreads, T::kResident)
    one_tap_kernel(const __grid_constant__ OneTapLoader loader, const TileGrid grid,
                   const EpilogueStore<Epilogue> sink, const int64_t m, const int n) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& memory = make_stages<T>();
    griddepcontrol_wait();
    if (threadIdx.x < T::kSummers) {
        setmaxnreg<T::kSumRegisters, true>();
        const PixelBoxes& boxes = loader.pixels;
        const PixelWords words(boxes.channels_last);
        Ring<T::kStages> ring;
        for (int index = int(blockIdx.x); index < grid.count(); index += int(gridDim.x)) {
            const TileAt tile(grid, index);
            float sums[T::kTileN / 2];
            sum_one_tap<T>(sums, memory, ring, tile.last - tile.first, words, boxes.channels_last);
            const int warp = own_thread() / 32, box = tile.row * T::kBoxes + warp / 2;
            const int image = boxes.image_of(box), begin = image * boxes.pixels;
            const int end = image < boxes.images ? begin + boxes.pixels : 0;
            const RowsAt to{tile.split * m, begin + boxes.first_of(box, image) + warp % 2 * 16, end,
                            n};
            const int column = tile.column * T::kTileN;
#pragma unroll 1
            for (int half = 0; half < T::kTileN / 64; ++half) {
                if (half == 0) lay_out<0>(sums, memory.rows[warp]);
                else lay_out<T::kTileN / 2 - 32>(sums, memory.rows[warp]);
                give_laid_out(memory.rows[warp], sink, to, column + half * 64);
            }
        }
    } else {
        setmaxnreg<T::kLoaderRegisters, false>();
        if (threadIdx.x == T::kSummers) loader.template fill<T>(memory, grid);
    }
#endif
}

// @OneTapTiles deps: ConvolutionForm, Launch, Windows, Workspace, in_parts, launch_clusters, launch_fma_product, one_tap_kernel, parts_of_windows, product_of_windows, round_filters_kernel
// A convolution of one tap, of stride 1 and without padding, in tiles of kColumns filters.
template <int kColumns>
struct OneTapTiles : ConvolutionForm {
    using T = OneTapSize<kColumns>;
    struct Call {
        uint32_t* filters;
        int64_t eights;  // channels of a filter
        int splits;
        float* parts;
        int64_t bytes;

        Call(const Convolution& c, void* workspace) {
            Workspace space{static_cast<char*>(workspace)};
            eights = (c.channels + 7) / 8;
            filters = space.take<uint32_t>(c.filters * eights * 8);
            const int64_t rows = c.batches * c.places();
            splits = parts_of_windows<T>(rows, c.filters, intervals(c));
            parts = space.take<float>(splits > 1 ? splits * rows * c.filters : 0);
            bytes = space.used;
        }
    };
    static int64_t intervals(const Convolution& c) {
        return (c.channels + T::kWidth - 1) / T::kWidth;
    }
    static bool takes(const Convolution& c) {
        constexpr int64_t kMost = 1ll << 30;
        return c.batches * (c.pixels() + PixelBoxes::kBox) < kMost &&
               c.channels * c.filters < kMost;
    }
    static bool reads(const Convolution& c) { return PixelBoxes::takes(c); }
    static int64_t workspace_bytes(const Convolution& c) {
        return takes(c) ? Call(c, nullptr).bytes : 0;
    }

    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        if (!takes(c) || !reads(c))
            return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr,
                                             stream);
        const Call call(c, workspace);
        OneTapLoader loader;
        int error = loader.pixels.open(c);
        if (!error) error = round_filters(c, call, loader, stream);
        if (error) return error;
        const int rows = (loader.pixels.count() + T::kBoxes - 1) / T::kBoxes;
        const auto grid = TileGrid::of(rows, int((c.filters + kColumns - 1) / kColumns),
                                       call.splits, 1, int(intervals(c)));
        return in_parts(sink, call.splits, call.parts, nullptr, stream, [&](const auto& to) {
            static OnEachDevice together;
            return launch_clusters<T>(together, grid.count(), one_tap_kernel<T, Epilogue>, stream,
                                      loader, grid, to, c.batches * c.places(), int(c.filters));
        });
    }
    static int round_filters(const Convolution& c, const Call& call, OneTapLoader& loader,
                             cudaStream_t stream) {
        const int64_t row = call.eights * 16, count = c.filters * call.eights;
        const int error = make_tensor_map(&loader.filters,
                                          {call.filters, 1, 0, c.filters, row, row}, T::kTileN, 64);
        if (error) return error;
        return Launch((count + 255) / 256, 256, 0, stream)
            .run(round_filters_kernel, static_cast<const float*>(c.weight), call.filters,
                 c.channels, int(call.eights), count, !loader.pixels.channels_last);
    }
};

}  // namespace op
