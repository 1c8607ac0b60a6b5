// libcuda.so: a library without functions that depends on libcuda.so.1 beside it.
namespace rgpu::shim {

// The linker needs at least one symbol.
extern const int kLinkName;
const int kLinkName = 1;

}  // namespace rgpu::shim
