/* The algorithms of kernels.cu for a processor, under the same names and with the same parameters.
 * The last parameter is the number of threads. */
#include <math.h>
#include <string.h>

void empty(int threads) { (void)threads; }

void saxpy(float a, const float* x, float* y, int n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}

void saxpy_stride(float a, const float* x, float* y, int n, int threads) {
  saxpy(a, x, y, n, threads);
}

void reduce_shared(const float* x, float* sums, int n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int block = 0; block < (n + 255) / 256; block++) {
    float part[256];
    for (int t = 0; t < 256; t++) part[t] = block * 256 + t < n ? x[block * 256 + t] : 0.0f;
    for (int half = 128; half > 0; half /= 2)
      for (int t = 0; t < half; t++) part[t] += part[t + half];
    sums[block] = part[0];
  }
}

void reduce_shuffle(const float* x, float* sums, int n, int threads) {
  reduce_shared(x, sums, n, threads);
}

void scan(const int* x, int* y, int n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int block = 0; block < (n + 255) / 256; block++) {
    int part[2][256], from = 0;
    for (int t = 0; t < 256; t++) part[0][t] = block * 256 + t < n ? x[block * 256 + t] : 0;
    for (int distance = 1; distance < 256; distance *= 2) {
      for (int t = 0; t < distance; t++) part[1 - from][t] = part[from][t];
      for (int t = distance; t < 256; t++)
        part[1 - from][t] = part[from][t] + part[from][t - distance];
      from = 1 - from;
    }
    for (int t = 0; t < 256 && block * 256 + t < n; t++) y[block * 256 + t] = part[from][t];
  }
}

static void product_tile(const float* a, const float* b, float* c, int n, int row, int column,
                         int edge) {
  float sum[64][64];
  memset(sum, 0, sizeof sum);
  for (int tile = 0; tile < n; tile += 16)
    for (int y = 0; y < edge; y++)
      for (int k = 0; k < 16; k++)
        for (int x = 0; x < edge; x++)
          sum[y][x] += a[(row + y) * n + tile + k] * b[(tile + k) * n + column + x];
  for (int y = 0; y < edge; y++)
    for (int x = 0; x < edge; x++) c[(row + y) * n + column + x] = sum[y][x];
}

void product_tiled(const float* a, const float* b, float* c, int n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int row = 0; row < n; row += 16)
    for (int column = 0; column < n; column += 16) product_tile(a, b, c, n, row, column, 16);
}

void product_registers(const float* a, const float* b, float* c, int n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int row = 0; row < n; row += 64)
    for (int column = 0; column < n; column += 64) product_tile(a, b, c, n, row, column, 64);
}

typedef struct {
  float x, y, z, w;
} float4;

void bodies(const float4* body, float4* force, int n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int i = 0; i < n; i++) {
    float4 me = body[i], sum = {0, 0, 0, 0};
    for (int j = 0; j < n; j++) {
      float dx = body[j].x - me.x, dy = body[j].y - me.y, dz = body[j].z - me.z;
      float square = dx * dx + dy * dy + dz * dz + 0.01f;
      float scale = body[j].w / (square * sqrtf(square));
      sum.x += dx * scale;
      sum.y += dy * scale;
      sum.z += dz * scale;
    }
    force[i] = sum;
  }
}

void histogram(const unsigned* x, unsigned* bins, int n, int threads) {
#pragma omp parallel num_threads(threads)
  {
    unsigned part[256];
    memset(part, 0, sizeof part);
#pragma omp for
    for (int i = 0; i < n; i++) part[x[i] & 255]++;
    for (int bin = 0; bin < 256; bin++) __atomic_fetch_add(&bins[bin], part[bin], __ATOMIC_RELAXED);
  }
}

void mandelbrot(int* steps, int n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 8)
  for (int row = 0; row < n; row++)
    for (int column = 0; column < n; column++) {
      float cx = -2.0f + 3.0f * column / n, cy = -1.5f + 3.0f * row / n, x = 0.0f, y = 0.0f;
      int step = 0;
      while (step < 256 && x * x + y * y < 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        step++;
      }
      steps[row * n + column] = step;
    }
}

void black_scholes(const float* price, const float* strike, const float* years, float* call, int n,
                   int threads) {
  const float rate = 0.02f, volatility = 0.3f;
#pragma omp parallel for num_threads(threads)
  for (int i = 0; i < n; i++) {
    float root = sqrtf(years[i]);
    float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) /
               (volatility * root);
    float d2 = d1 - volatility * root;
    float n1 = 0.5f * erfcf(-d1 * 0.70710678f), n2 = 0.5f * erfcf(-d2 * 0.70710678f);
    call[i] = price[i] * n1 - strike[i] * expf(-rate * years[i]) * n2;
  }
}
