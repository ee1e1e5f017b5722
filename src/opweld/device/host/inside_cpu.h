#include <atomic>
#include <stdexcept>

namespace host {

// Whether all that threads have read by indices was there.
class Inside {
public:
  void operator&=(bool inside) {
    if (!inside) all_ = false;
  }
  void require() const {
    if (!all_) throw std::out_of_range("index out of range");
  }

private:
  std::atomic<bool> all_{true};
};

// Along an axis of no elements there is nothing that could be read instead.
inline void expect_elements(int64_t extent, const Tensor& index) {
  if (extent == 0 && index.numel() > 0) throw std::out_of_range("index out of range");
}

}  // namespace host
