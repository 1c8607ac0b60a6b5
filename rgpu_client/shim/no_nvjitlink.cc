// libnvJitLink.so.12 and .13, empty: `RGPU_HIDE_NVJITLINK=1` loads them first.  A program that
// finds an nvJitLink without functions takes it for too old and links with the driver, which takes
// PTX.
namespace rgpu::shim {

// A library needs some content.
extern const int kNoNvJitLink;
const int kNoNvJitLink = 1;

}  // namespace rgpu::shim
