namespace host {
namespace {

// What the kernels of a convolution are told of it: as op::Convolution of the CUDA text.
struct Convolution {
  const void *x, *weight;
  int64_t batches, channels, filters;
  int64_t batch, pixel, channel;  // strides of x in elements
  int size[3], kernel[3], stride[3], padding[3], dilation[3], out[3];
};

}  // namespace
}  // namespace host
