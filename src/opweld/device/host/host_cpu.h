
// Fewer elements than this are not worth a second thread.
constexpr int64_t kGrain = 16384;

}  // namespace host
