// Heat that spreads in a square plate, with the CUDA driver API and a kernel in PTX.
//
//   g++ -std=c++17 -O2 -I CUDA/include examples/heat/heat.cc -L FOLDER -l:libcuda.so.1 -o heat
//   rgpu run --memory 256MiB -- ./heat [POINTS] [STEPS]
//
// CUDA/include is the folder with cuda.h. FOLDER is what `rgpu_client.library_path()` returns, or
// that of NVIDIA's libcuda.so. The edges of the plate are held at 0. A plate that is warmed as
// sin(x) sin(y) keeps this form, and each step of the method cools it by the same factor. So the
// result has a closed form, and the program ends with 1 if it finds something else.
#include <cuda.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kRate = 0.2;
constexpr unsigned kBlock = 16;

// to[y][x] = from[y][x] + rate * (the four neighbours - 4 * from[y][x]), inside the edges.
constexpr char kStep[] = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry step(.param .u64 p_from, .param .u64 p_to, .param .u32 p_points, .param .f64 p_rate)
{
  .reg .pred %p<5>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<9>;
  .reg .f64 %f<11>;

  ld.param.u64 %rd1, [p_from];
  ld.param.u64 %rd2, [p_to];
  ld.param.u32 %r1, [p_points];
  ld.param.f64 %f1, [p_rate];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  mov.u32 %r6, %ctaid.y;
  mov.u32 %r7, %ntid.y;
  mov.u32 %r8, %tid.y;
  mad.lo.u32 %r9, %r6, %r7, %r8;

  sub.u32 %r10, %r1, 1;
  setp.eq.u32 %p1, %r5, 0;
  setp.ge.u32 %p2, %r5, %r10;
  setp.eq.u32 %p3, %r9, 0;
  setp.ge.u32 %p4, %r9, %r10;
  or.pred %p1, %p1, %p2;
  or.pred %p3, %p3, %p4;
  or.pred %p1, %p1, %p3;
  @%p1 bra DONE;

  mad.lo.u32 %r11, %r9, %r1, %r5;
  mul.wide.u32 %rd3, %r11, 8;
  mul.wide.u32 %rd4, %r1, 8;
  add.u64 %rd5, %rd1, %rd3;
  add.u64 %rd6, %rd2, %rd3;
  sub.u64 %rd7, %rd5, %rd4;
  add.u64 %rd8, %rd5, %rd4;
  ld.global.f64 %f2, [%rd5];
  ld.global.f64 %f3, [%rd5+8];
  ld.global.f64 %f4, [%rd5+-8];
  ld.global.f64 %f5, [%rd7];
  ld.global.f64 %f6, [%rd8];
  add.f64 %f7, %f3, %f4;
  add.f64 %f8, %f5, %f6;
  add.f64 %f7, %f7, %f8;
  fma.rn.f64 %f9, %f2, 0dC010000000000000, %f7;
  fma.rn.f64 %f10, %f1, %f9, %f2;
  st.global.f64 [%rd6], %f10;
DONE:
  ret;
}
)";

// Ends the program with the driver's own words if a call has failed.
void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* words = nullptr;
  cuGetErrorString(result, &words);
  std::fprintf(stderr, "%s failed: %s (%d)\n", call, words != nullptr ? words : "?", result);
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

std::vector<double> Start(unsigned points) {
  std::vector<double> plate(std::size_t{points} * points);
  for (unsigned y = 0; y < points; ++y) {
    for (unsigned x = 0; x < points; ++x) {
      plate[std::size_t{y} * points + x] =
          std::sin(kPi * x / (points - 1)) * std::sin(kPi * y / (points - 1));
    }
  }
  for (unsigned i = 0; i < points; ++i) {  // sin(pi) is not quite 0 in floating point
    const std::size_t last = points - 1;
    plate[i] = plate[last * points + i] = plate[std::size_t{i} * points] = 0;
    plate[i * std::size_t{points} + last] = 0;
  }
  return plate;
}

std::vector<double> Cooled(const std::vector<double>& plate, unsigned points, unsigned steps) {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction step;
  CUdeviceptr from, to;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  char name[96];
  CHECK(cuDeviceGetName(name, sizeof name, device));
  std::printf("%u x %u points, %u steps on %s\n", points, points, steps, name);
  CHECK(cuModuleLoadData(&module, kStep));
  CHECK(cuModuleGetFunction(&step, module, "step"));
  const std::size_t bytes = plate.size() * sizeof(double);
  CHECK(cuMemAlloc(&from, bytes));
  CHECK(cuMemAlloc(&to, bytes));
  CHECK(cuMemcpyHtoD(from, plate.data(), bytes));
  CHECK(cuMemcpyHtoD(to, plate.data(), bytes));
  const unsigned blocks = (points + kBlock - 1) / kBlock;
  double rate = kRate;
  for (unsigned i = 0; i < steps; ++i) {
    void* arguments[] = {&from, &to, &points, &rate};
    CHECK(
        cuLaunchKernel(step, blocks, blocks, 1, kBlock, kBlock, 1, 0, nullptr, arguments, nullptr));
    std::swap(from, to);
  }
  std::vector<double> result(plate.size());
  CHECK(cuMemcpyDtoH(result.data(), from, bytes));
  CHECK(cuMemFree(from));
  CHECK(cuMemFree(to));
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  return result;
}

// Prints the plate: a character stands for warmth.
void Show(const std::vector<double>& plate, unsigned points) {
  constexpr unsigned kRows = 12, kColumns = 32;
  constexpr char kWarmth[] = " .:-=+*#%@";
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned column = 0; column < kColumns; ++column) {
      const std::size_t y = ((points - 1) * (2 * row + 1) + kRows) / (2 * kRows);
      const std::size_t x = ((points - 1) * (2 * column + 1) + kColumns) / (2 * kColumns);
      std::putchar(kWarmth[static_cast<int>(9.99 * plate[y * points + x])]);
    }
    std::putchar('\n');
  }
}

// Returns a number of the command line, or ends the program if it is out of bounds.
unsigned Number(const char* word, const char* what, long least, long most) {
  const long number = std::strtol(word, nullptr, 10);
  if (number < least || number > most) {
    std::fprintf(stderr, "give %ld to %ld %s, not %s\n", least, most, what, word);
    std::exit(2);
  }
  return static_cast<unsigned>(number);
}

}  // namespace

int main(int count, char** words) {
  const unsigned points = Number(count > 1 ? words[1] : "128", "points", 3, 16384);
  const unsigned steps = Number(count > 2 ? words[2] : "200", "steps", 1, 1000000);
  const std::vector<double> plate = Start(points);
  const std::vector<double> result = Cooled(plate, points, steps);
  const double wave = std::sin(kPi / (2.0 * (points - 1)));
  const double factor = std::pow(1 - 8 * kRate * wave * wave, steps);
  double off = 0;
  for (std::size_t i = 0; i < plate.size(); ++i) {
    off = std::fmax(off, std::fabs(result[i] - factor * plate[i]));
  }
  const bool right = off < 1e-11;
  if (right) Show(result, points);
  std::printf(
      "the middle is at %.6f, and all points differ from the closed form by %.1e at most: %s\n",
      factor, off, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
