// libcuda.so: nothing of its own, it only needs libcuda.so.1 beside it.
namespace rgpu::shim {

// A library needs some content.
extern const int kLinkName;
const int kLinkName = 1;

}  // namespace rgpu::shim
