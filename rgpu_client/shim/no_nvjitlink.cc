// Empty libnvJitLink.so.12 and .13, which `RGPU_HIDE_NVJITLINK=1` loads before NVIDIA's. A program
// that finds an nvJitLink without functions takes the library for too old. The program then links
// with the driver, which accepts PTX.
namespace rgpu::shim {

// The linker needs at least one symbol.
extern const int kNoNvJitLink;
const int kNoNvJitLink = 1;

}  // namespace rgpu::shim
