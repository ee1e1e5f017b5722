namespace host {

// So many rows are worth a thread of their own.
inline int64_t rows_a_task(int64_t length) {
  return length < kGrain ? kGrain / (length < 1 ? 1 : length) : 1;
}

// In how many pieces each row is folded, side by side. The sizes alone decide, so that a result
// does not depend on the number of threads.
inline int64_t num_pieces(int64_t num_rows, int64_t length) {
  constexpr int64_t kMost = 64;
  if (num_rows >= kMost) return 1;
  const int64_t pieces = num_rows * length / (4 * kGrain);
  return pieces < 1 ? 1 : pieces < kMost ? pieces : kMost;
}

}  // namespace host
