// What the folding of values is: an identity, and how two values become one. T is the type that the
// values are computed in. NaN, once met, stays the result of Sum, Prod, Amax and Amin, and of
// Argmax and Argmin the first NaN is the extreme, as in eager PyTorch.

namespace op {

// @kLeast deps: kIsFloating, kIsSigned, kInfinity
// Nothing of type T is less: -Inf, or the least integer.
template <typename T>
OPWELD_FN constexpr T least_of() {
    if constexpr (kIsFloating<T>) {
        return -kInfinity<T>;
    } else if constexpr (kIsSigned<T>) {
        return T(T(1) << (8 * sizeof(T) - 1));
    } else {
        return T(0);
    }
}
template <typename T>
constexpr T kLeast = least_of<T>();

// @kGreatest deps: kIsFloating, kIsSigned, kInfinity, kLeast
// Nothing of type T is greater.
template <typename T>
OPWELD_FN constexpr T greatest_of() {
    if constexpr (kIsFloating<T>) {
        return kInfinity<T>;
    } else if constexpr (kIsSigned<T>) {
        return T(~kLeast<T>);
    } else {
        return T(-1);
    }
}
template <typename T>
constexpr T kGreatest = greatest_of<T>();

// @Sum deps:
struct Sum {
    template <typename T>
    OPWELD_FN T identity() {
        return T(0);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a + b);
    }
};

// @Prod deps:
struct Prod {
    template <typename T>
    OPWELD_FN T identity() {
        return T(1);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a * b);
    }
};

// @Amax deps: kLeast, maximum
struct Amax {
    template <typename T>
    OPWELD_FN T identity() {
        return kLeast<T>;
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return op::maximum(a, b);
    }
};

// @Amin deps: kGreatest, minimum
struct Amin {
    template <typename T>
    OPWELD_FN T identity() {
        return kGreatest<T>;
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return op::minimum(a, b);
    }
};

// @Any deps:
struct Any {
    template <typename T>
    OPWELD_FN T identity() {
        return T(false);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a | b);
    }
};

// @All deps:
struct All {
    template <typename T>
    OPWELD_FN T identity() {
        return T(true);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a & b);
    }
};

// @Placed deps:
// A value and its position in the row, counted from 0.
template <typename T, typename Position>
struct Placed {
    T value;
    Position position;
};

// @Argmax deps: kLeast, Placed
// The first place of the largest. The identity's place is 0: where the whole row holds nothing
// greater than the identity, its first element is the answer.
struct Argmax {
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> identity() {
        return {kLeast<T>, Position(0)};
    }
    // Whether a value takes the place of one that was met before it: a greater one, or the first
    // NaN.
    template <typename T>
    OPWELD_FN bool takes(T later, T held) {
        return !(later <= held) & (held == held);
    }
    // Of which `b` comes later in the row.
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> follow(Placed<T, Position> a, Placed<T, Position> b) {
        return takes(b.value, a.value) ? b : a;
    }
    // In any order.
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> combine(Placed<T, Position> a, Placed<T, Position> b) {
        bool before = (b.position < a.position) & !takes(a.value, b.value);
        return takes(b.value, a.value) | before ? b : a;
    }
};

// @Argmin deps: kGreatest, Placed
// The first place of the smallest, likewise.
struct Argmin {
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> identity() {
        return {kGreatest<T>, Position(0)};
    }
    template <typename T>
    OPWELD_FN bool takes(T later, T held) {
        return !(later >= held) & (held == held);
    }
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> follow(Placed<T, Position> a, Placed<T, Position> b) {
        return takes(b.value, a.value) ? b : a;
    }
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> combine(Placed<T, Position> a, Placed<T, Position> b) {
        bool before = (b.position < a.position) & !takes(a.value, b.value);
        return takes(b.value, a.value) | before ? b : a;
    }
};

// @Compensated deps:
// A sum, and what its roundings have left out.
template <typename T>
struct Compensated {
    T sum, rest;
};

// @left_out deps:
// What the addition of a and b leaves out, exactly: Knuth, "The Art of Computer Programming",
// volume 2, 4.2.2, theorem B.
template <typename T>
OPWELD_FN T left_out(T a, T b, T sum) {
    const T of_b = sum - a;
    return (a - (sum - of_b)) + (b - of_b);
}

// @Powers deps: Compensated
// The largest of values v, and the sum of exp(v - origin). The origin is an earlier largest, which
// the largest has not left by more than two kLag: a sum that is moved to every new largest would be
// rounded as often, and where rows ascend slowly these roundings add up.
template <typename T, typename Total>
struct Powers {
    static constexpr int kLag = 1;
    T largest, origin;
    Total sum, rest;
};

// @times_exp deps: Compensated, exp
// x * exp(from - to), within an ulp or so of a rounded sum in float: the last moves of a sum have
// no others beside them that would even their errors out. Where that overflows or vanishes, or is
// no number, all of it is the sum.
[[maybe_unused]] OPWELD_FN Compensated<double> times_exp(Compensated<double> x, double from,
                                                         double to) {
    return {(x.sum + x.rest) * op::exp(from - to), 0.0};
}
[[maybe_unused]] OPWELD_FN Compensated<float> times_exp(Compensated<float> x, float from,
                                                        float to) {
    const float d = from - to;
    if (!(::fabs(d) < 80.0f)) return {x.sum * op::exp(d), 0.0f};
    const float back = d - from, lost = (from - (d - back)) - (to + back);
    // d + lost = k log(2) + r + low; e^r = 1 + r + r^2 q, of which low has its share. The first
    // part of log(2) has zeros at its end, so that r is exact.
    const float k = ::rint(d * 1.44269504f);
    const float r = ::fma(k, -0.693145752f, d), low = ::fma(k, -1.42860677e-6f, lost);
    float q = ::fma(r, 1.0f / 5040, 1.0f / 720);
    q = ::fma(r, q, 1.0f / 120);
    q = ::fma(r, q, 1.0f / 24);
    q = ::fma(r, q, 1.0f / 6);
    q = ::fma(r, q, 0.5f);
    const float rest = r * r * q, more = r + (rest + ::fma(low, r + rest, low));
    const float sum = ::fma(x.sum, more, x.sum);
    const float beside = ::fma(x.sum, more, x.sum - sum) + ::fma(x.rest, more, x.rest);
    const int twos = int(k);
    return {::ldexp(sum, twos), beside - beside == 0.0f ? ::ldexp(beside, twos) : 0.0f};
}

// @Sumexp deps: Powers, exp, kInfinity, left_out, maximum, minimum, times_exp
// The sum of exp(v - largest), taken together with the largest. A largest that is infinite gives
// NaN, as the difference does where the largest is known beforehand.
struct Sumexp {
    template <typename T, typename Total>
    OPWELD_FN Powers<T, Total> identity() {
        return {-kInfinity<T>, -kInfinity<T>, Total(0), Total(0)};
    }
    // The sum where its origin moves. Origins may both be -Inf.
    template <typename T, typename Total>
    OPWELD_FN Compensated<Total> moved(const Powers<T, Total>& powers, T to) {
        const Compensated<Total> sum{powers.sum, powers.rest};
        return powers.origin == to ? sum : times_exp(sum, Total(powers.origin), Total(to));
    }
    template <typename T, typename Total>
    OPWELD_FN Powers<T, Total> combine(const Powers<T, Total>& a, const Powers<T, Total>& b) {
        const T low = op::minimum(a.origin, b.origin), high = op::maximum(a.origin, b.origin);
        const T origin = high <= low + Powers<T, Total>::kLag ? low : high;
        const Compensated<Total> one = moved(a, origin), other = moved(b, origin);
        const Total sum = one.sum + other.sum;
        return {op::maximum(a.largest, b.largest), origin, sum,
                one.rest + other.rest + left_out(one.sum, other.sum, sum)};
    }
    // Before values up to `top` are taken in. NaN moves the origin, too.
    template <typename T, typename Total>
    OPWELD_FN void reach(Powers<T, Total>& powers, T top) {
        powers.largest = op::maximum(powers.largest, top);
        if (!(top <= powers.origin + Powers<T, Total>::kLag)) {
            const Compensated<Total> sum = moved(powers, top);
            powers.sum = sum.sum, powers.rest = sum.rest;
            powers.origin = top;
        }
    }
    // What to subtract from values before exp: never -Inf - -Inf, as the powers of -Inf are 0.
    template <typename T, typename Total>
    OPWELD_FN T base(const Powers<T, Total>& powers) {
        return powers.origin == -kInfinity<T> ? T(0) : powers.origin;
    }
    template <typename T, typename Total>
    OPWELD_FN T told(const Powers<T, Total>& powers) {
        const Compensated<Total> sum =
            times_exp({powers.sum, powers.rest}, Total(powers.origin), Total(powers.largest));
        return T(sum.sum + sum.rest);
    }
    template <typename T, typename Total>
    OPWELD_FN T largest_told(const Powers<T, Total>& powers) {
        return powers.largest;
    }
};

// @Mean deps: Compensated, left_out
// The mean, rounded once: that of equal elements is one of them.
struct Mean {
    template <typename T>
    OPWELD_FN Compensated<T> identity() {
        return {T(0), T(0)};
    }
    // What many additions leave out goes back to the sum; of infinities NaN is left out.
    template <typename T>
    OPWELD_FN Compensated<T> combine(Compensated<T> a, Compensated<T> b) {
        const T sum = a.sum + b.sum, rest = a.rest + b.rest + left_out(a.sum, b.sum, sum);
        const T whole = rest - rest == T(0) ? sum + rest : sum;
        return {whole, left_out(sum, rest, whole)};
    }
    // Of which `b` is an element, and `a` of few.
    template <typename T>
    OPWELD_FN Compensated<T> follow(Compensated<T> a, Compensated<T> b) {
        const T sum = a.sum + b.sum;
        return {sum, a.rest + left_out(a.sum, b.sum, sum)};
    }
    // Of `length` elements, in its type, which must hold it exactly.
    template <typename T, typename Wide>
    OPWELD_FN T told(const Compensated<T>& whole, Wide length) {
        const Wide sum = whole.sum, part = Wide(1) / length, mean = sum * part;
        const Wide beside = (::fma(-mean, length, sum) + whole.rest) * part;
        return T(beside - beside == Wide(0) ? mean + beside : mean);  // infinities leave NaN
    }
};

// @Spread deps:
// How many values of type T there are, their sum, and the sum of the squared differences to their
// mean. In double a mean far from 0 leaves the differences their digits.
template <typename T>
struct Spread {
    double count, sum, squares;
};

// @Devsq deps: Spread
// The sum of squared differences to the mean, taken together with the sum: Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
struct Devsq {
    template <typename T>
    OPWELD_FN Spread<T> identity() {
        return {0, 0, 0};
    }
    template <typename T>
    OPWELD_FN Spread<T> combine(Spread<T> a, Spread<T> b) {
        const double count = a.count + b.count;
        // The difference of the means, times both counts: 0 where they are equal, however it is
        // rounded. To divide in T is exact enough: what it rounds is squared already.
        const double share = a.sum * b.count;
        const double apart = ::fma(b.sum, a.count, -share) - ::fma(a.sum, b.count, -share);
        const T weights = T(a.count * b.count * count);
        const T part = weights > 0 ? T(1) / weights : T(0);
        return {count, a.sum + b.sum, a.squares + b.squares + apart * part * apart};
    }
    // Of `count` values about `about`, which is near their mean: `rest` is the sum of the
    // differences to it, `squares` that of their squares.
    template <typename T, typename Total>
    OPWELD_FN Spread<T> of_differences(Total count, T about, Total rest, Total squares) {
        // What is too large is in the squares, and in `about`.
        const Total finite = rest - rest == Total(0) ? rest : Total(0);
        return {double(count), ::fma(double(count), double(about), double(finite)),
                double(squares) - double(finite) * (finite / count)};
    }
    template <typename T>
    OPWELD_FN T told(const Spread<T>& spread) {
        return T(spread.squares);
    }
    template <typename T>
    OPWELD_FN T sum_told(const Spread<T>& spread) {
        return T(spread.sum);
    }
    template <typename T>
    OPWELD_FN T mean_told(const Spread<T>& spread) {
        return T(spread.sum / spread.count);
    }
};

}  // namespace op
